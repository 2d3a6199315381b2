"""The `windlass` command: a room for each area, one file per noun.

Imports of servers, clients and tables happen inside the commands that need
them: completion and `--help` must answer at once.

May import the SDK and what checks files (`datasets`, `jobs_api`); of the server, what composes one,
inside functions of `server` alone.
"""

from windlass.cli.main import main

__all__ = ["main"]
