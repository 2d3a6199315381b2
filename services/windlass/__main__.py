"""`python -m windlass`: the command, where no script is on the path."""

from windlass.cli import main

main()
