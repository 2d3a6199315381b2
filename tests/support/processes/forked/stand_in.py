"""`python stand_in.py SOCKET EXECUTABLE [-u] -m MODULE ARGUMENTS...`: a forked trainer's place.

It has the pid, group, session and parent that the trainer would have. It hands all else over to
the fork server, passes on the signals that it gets, and ends as the trainer does. Killed, it
takes the trainer along. Standard library alone: it starts in 20 ms.

Instead of a module there may be a script's path, as an interpreter takes either.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import struct
import sys
from types import FrameType

_PR_SET_PDEATHSIG = 1
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_LENGTH = struct.Struct("!I")
_STATUS = struct.Struct("!i")


def main() -> None:
    """Stands in for a trainer until it has ended."""
    path, executable, *words = sys.argv[1:]
    kind = "module" if words[0].startswith("-") else "script"
    program, *arguments = words[words.index("-m") + 1 :] if kind == "module" else words
    # The server cannot tie a child to whoever started this process, as the trainer would itself.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    umask = os.umask(0)
    request = {
        "stands_in": True,
        kind: program,
        "arguments": arguments,
        "executable": executable,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109 - pathlib alone takes as long to import as the rest
        "umask": umask,
        "limits": {
            number: resource.getrlimit(number)
            for name, number in vars(resource).items()
            if name.startswith("RLIMIT_")
        },
    }
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    document = json.dumps(request).encode()
    socket.send_fds(server, [_LENGTH.pack(len(document))], [0, 1, 2])
    server.sendall(document)
    _end_as(_wait(server))


def _wait(server: socket.socket) -> int:
    """Returns the trainer's exit code, negative where a signal ended it."""

    def forward(number: int, frame: FrameType | None) -> None:
        server.send(bytes([number]))

    for number in _FORWARDED:
        signal.signal(number, forward)
    told = server.recv(_STATUS.size)
    if not told:
        raise SystemExit("the fork server is gone")
    code: int = _STATUS.unpack(told)[0]
    return code


def _end_as(code: int) -> None:
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
