"""The `windlass` command: a room for each area, one file per noun.

Imports of servers, clients and tables happen inside the commands that need
them: completion and `--help` must answer at once.
"""

from windlass.cli.main import main

__all__ = ["main"]
