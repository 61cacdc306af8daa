"""Bringing drafts and target together: captured prompts, and whether a new draft is better."""
