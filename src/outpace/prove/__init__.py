"""Checking the promise: the same tokens, the same distribution, from inside or from outside."""
