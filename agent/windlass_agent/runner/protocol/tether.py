"""Runs a command that dies with its parent: `python tether.py PARENT_PID COMMAND...`.

The kernel keeps a parent-death signal across exec. Setting it here, in the new process,
needs no code between fork and exec in a parent that has threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tie() -> None:
    """Has the kernel end this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Ties this process to its parent and becomes the command."""
    tie()
    if os.getppid() != int(sys.argv[1]):
        raise SystemExit("the parent is gone")
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
