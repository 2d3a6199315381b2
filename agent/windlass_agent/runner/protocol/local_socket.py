"""Unix sockets in a working folder, whatever the length of its path."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

# A Unix socket's address holds 108 bytes on Linux, 104 on macOS.
_LONGEST = 100


def listening(path: Path) -> socket.socket:
    """Returns a socket that listens at `path`, in place of one that was left there."""
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX)
    with _address(path) as address:
        made.bind(address)
    made.listen()
    return made


def connected(path: Path) -> socket.socket:
    """Returns a connection to the process that listens at `path`; raises OSError."""
    made = socket.socket(socket.AF_UNIX)
    try:
        with _address(path) as address:
            made.connect(address)
    except BaseException:
        made.close()
        raise
    return made


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
