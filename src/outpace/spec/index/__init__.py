"""A datastore on disk: texts as token ids, sorted so that any passage is found at once."""
