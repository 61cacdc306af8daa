"""Training of drafters: capture, data, losses, heads and small models, evaluation, export."""
