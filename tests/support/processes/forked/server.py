"""`python server.py LISTENER MODULE...`: forks trainers that have their libraries imported.

It computes nothing itself and has no thread of Python's, so that a fork of it is what an
interpreter is after the same imports. A child takes the place of its stand-in: arguments,
environment, folder, umask and streams are those of the stand-in, the module runs as
`__main__` and the interpreter ends in order. The socket on the descriptor LISTENER is where
stand-ins come; the server ends with its standard input, and its children with it.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_PR_SET_PDEATHSIG = 1
_STREAMS = 3
_LENGTH = struct.Struct("!I")
_STATUS = struct.Struct("!i")


@dataclass(frozen=True)
class _Request:
    """A request to take a stand-in's place."""

    document: dict[str, Any]
    streams: list[int]

    @classmethod
    def read(cls, connection: socket.socket) -> "_Request":
        head, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, _STREAMS)
        (length,) = _LENGTH.unpack(head)
        with connection.makefile("rb") as file:
            return cls(json.loads(file.read(length)), streams)

    def take(self) -> str:
        """Makes this process what the stand-in was; returns the module that it was started for."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(self.document["folder"])
        os.umask(self.document["umask"])
        os.environ.clear()
        os.environ.update(self.document["environment"])
        sys.executable = self.document["executable"]
        # It is kept once it was asked for.
        tempfile.tempdir = None
        module: str = self.document["module"]
        sys.argv = [module, *self.document["arguments"]]
        # Imported for what it imports; from here on it is the program.
        sys.modules.pop(module, None)
        return module


class _Server:
    """Children by the connection of their stand-in."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)

    def serve(self) -> _Request | None:
        """Returns in each child, what it is asked for; None in the server, when it is to end."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    return None
                if key.fileobj is self._listener:
                    if request := self._fork():
                        return request
                elif isinstance(key.fileobj, socket.socket):
                    self._forward(key.fileobj, key.data)
                else:
                    self._conclude(key.fd, *key.data)

    def _fork(self) -> _Request | None:
        connection, _ = self._listener.accept()
        try:
            request = _Request.read(connection)
        except (OSError, ValueError, struct.error):
            # It was killed before it had asked.
            connection.close()
            return None
        pid = os.fork()
        if pid == 0:
            self._leave(connection)
            return request
        for stream in request.streams:
            os.close(stream)
        with suppress(OSError):
            os.setpgid(pid, pid)
        self._selector.register(connection, selectors.EVENT_READ, pid)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
        return None

    def _leave(self, connection: socket.socket) -> None:
        """Separates a child: own group, none of the server's files, ends with the server."""
        with suppress(OSError):
            os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for key in list(self._selector.get_map().values()):
            if key.fd > 0:
                os.close(key.fd)
        self._selector.close()
        connection.close()

    def _forward(self, connection: socket.socket, pid: int) -> None:
        """Passes signals on to the child's group, and kills it when its stand-in ends."""
        if connection.fileno() < 0:
            # The child has ended at the same moment.
            return
        numbers = b""
        with suppress(ConnectionError):
            numbers = connection.recv(16)
        if not numbers:
            self._selector.unregister(connection)
        for number in numbers or (signal.SIGKILL,):
            with suppress(ProcessLookupError):
                os.killpg(pid, number)

    def _conclude(self, pidfd: int, pid: int, connection: socket.socket) -> None:
        """Tells the stand-in how its child ended."""
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        with suppress(ProcessLookupError):
            # What it started and left, as whoever signals the stand-in's group would.
            os.killpg(pid, signal.SIGKILL)
        with suppress(KeyError):
            self._selector.unregister(connection)
        with suppress(ConnectionError):
            connection.sendall(_STATUS.pack(os.waitstatus_to_exitcode(status)))
        connection.close()


def main() -> None:
    """Imports, then serves; in a child it runs what the child was asked for."""
    # Ctrl-C is for pytest, which closes the standard input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.collect()
    # Collections in a child would write to, and so copy, all that it shares.
    gc.freeze()
    sys.stdout.flush()
    request = _Server(listener).serve()
    if request is not None:
        runpy.run_module(request.take(), run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
