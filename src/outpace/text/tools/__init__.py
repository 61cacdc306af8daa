"""Tools: what a model may call, how its family writes calls, and how they are read again."""
