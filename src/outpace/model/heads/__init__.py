"""Trained heads that draft from the target's hidden states: their formats and their passes."""
