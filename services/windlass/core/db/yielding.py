"""Processes of a database on this machine that let all others go first.

A database has no priorities of its own: where it shares the processors with what people wait for,
the kernel's are what long work in it can have.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

LEAST_PRIORITY = 19
# How Postgres titles the process of a connection.
_TITLE = b"postgres:"


def let_others_first(connection: Any) -> bool:
    """Gives the process behind a psycopg connection the least priority; returns whether it has it.

    Only behind a Unix socket, since elsewhere its number is another machine's; and only where this
    process may, as its parent or as root. It keeps it to its end.
    """
    if not connection.info.host.startswith("/"):
        return False
    number = connection.info.backend_pid
    process = Path(f"/proc/{number}")
    with suppress(OSError):
        if not (process / "cmdline").read_bytes().startswith(_TITLE):
            return False
        os.setpriority(os.PRIO_PROCESS, number, LEAST_PRIORITY)
        # Each process of Postgres has a session of its own, and among sessions this one counts.
        with suppress(FileNotFoundError):
            (process / "autogroup").write_text(str(LEAST_PRIORITY))
        return True
    return False
