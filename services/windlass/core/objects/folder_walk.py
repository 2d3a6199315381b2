"""Counts or removes the objects below a folder: as a module, and as a program by this file.

A large folder is walked by a process of its own. A thread would take the interpreter from the
event loop, and wait for it, at each object. It imports the standard library alone, so that it
starts in 20 ms.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


def sizes(folder: Path | str) -> Iterator[int]:
    """The bytes of each object below a folder, in no order: sorting many names takes long."""
    for entry in entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from sizes(entry.path)
            continue
        with suppress(*MISSING):
            yield entry.stat().st_size


def removed(folder: Path | str) -> Iterator[int]:
    """Removes each object below a folder, and then the folder; yields zeros."""
    for entry in entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from removed(entry.path)
            continue
        with suppress(*MISSING):
            os.unlink(entry.path)  # noqa: PTH108 - a Path for each costs half as much again
            yield 0
    # One that has got an object meanwhile stays.
    with suppress(OSError):
        Path(folder).rmdir()


def entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """The names in a folder; none where it is missing."""
    with suppress(*MISSING), os.scandir(folder) as found:
        yield from found


LEAST_PRIORITY = 19
WALKS = {"sizes": sizes, "removed": removed}


def main(walk: str, folder: str) -> None:
    """Prints the number of objects and their bytes; whoever else wants a processor has it first."""
    os.nice(LEAST_PRIORITY)
    # Linux shares processors among sessions before it looks at what each process asked for.
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(LEAST_PRIORITY))
    number = size = 0
    for one in WALKS[walk](folder):
        number, size = number + 1, size + one
    print(number, size)


if __name__ == "__main__":
    main(*sys.argv[1:])
