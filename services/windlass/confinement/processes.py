"""Processes behind walls, seen from outside."""

import psutil

_NAME = "bwrap"
# A shell's way to say that a signal ended a command, which bwrap has too.
_SIGNALLED = 128


def innermost(pid: int) -> int:
    """The command itself, of which `pid` may be the bwrap that waits for it.

    The pid itself where there are no walls, or the walls are not yet whole.
    """
    try:
        process = psutil.Process(pid)
        while process.name() == _NAME:
            process = min(process.children(), key=psutil.Process.create_time)
    except (psutil.Error, ValueError):
        return pid
    return process.pid


def exit_code(code: int) -> int:
    """The status that a command within walls ended with, negative for a signal."""
    return _SIGNALLED - code if code > _SIGNALLED else code
