"""``python -m outpace``: the command, where scripts are not on the path."""

from outpace.cli import main

main()
