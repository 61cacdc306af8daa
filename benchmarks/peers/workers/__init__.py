"""One worker for each system, run by the Python of that system's environment."""
