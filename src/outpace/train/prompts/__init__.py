"""Prompts of our own for training: templates and topics, and texts that the target wrote."""
