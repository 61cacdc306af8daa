"""Guessing and checking: draft trees, drafters, verifiers and what they achieved."""
