"""Pages about a record: one file to keep, and one that goes on by itself."""
