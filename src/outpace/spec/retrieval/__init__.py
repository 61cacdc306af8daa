"""Guessing by looking up: where a text occurred before, and how it went on there."""
