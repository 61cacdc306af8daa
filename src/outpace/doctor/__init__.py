"""Finding out whether speculation pays on this machine, and why."""
