"""Parts of the comparison with other systems; `peers.py` beside this folder runs it."""
