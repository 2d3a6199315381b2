"""`python server.py LISTENER MODULE-OR-FILE...`: forks programs that have their libraries imported.

It computes nothing itself and has no thread of Python's, so that a fork of it is what an
interpreter is after the same imports. Arguments, environment, folder, umask and streams of a child
are those that the request names, its program runs as `__main__` and the interpreter ends in order.
Requests come to the socket on the descriptor LISTENER. A stand-in's child takes its place: it ends
with its stand-in and with the server. Any other's is a process of its own, which may outlive both.
The server ends with its standard input.
"""

import atexit
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
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_STREAMS = 3
_LENGTH = struct.Struct("!I")
_STATUS = struct.Struct("!i")
_CREDENTIALS = struct.Struct("3i")
# It lies beside this file, which is run by its path.
_WALLS = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("walls.py"))))


@dataclass(frozen=True)
class _Request:
    """A request for a child; its connection is told of the child's end."""

    document: dict[str, Any]
    streams: list[int]

    @classmethod
    def read(cls, connection: socket.socket) -> "_Request":
        head, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, _STREAMS)
        (length,) = _LENGTH.unpack(head)
        with connection.makefile("rb") as file:
            return cls(json.loads(file.read(length)), streams)

    @property
    def stands_in(self) -> bool:
        """Whether the child lives no longer than whoever asked."""
        return bool(self.document["stands_in"])

    def run(self) -> None:
        """Runs the program to its end, in its place."""
        self._take_place()
        words = self.document["arguments"]
        if script := self.document.get("script"):
            sys.argv = [script, *words]
            _run_script(script)
        module: str = self.document["module"]
        sys.argv = [module, *words]
        # Imported for what it imports; from here on it is the program.
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)

    def _take_place(self) -> None:
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(self.document["folder"])
        os.umask(self.document["umask"])
        os.environ.clear()
        os.environ.update(self.document["environment"])
        sys.executable = self.document["executable"]
        # As for an interpreter that begins with these streams.
        sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]  # is none
        # It is kept once it was asked for.
        tempfile.tempdir = None
        sys.path[:0] = self.document.get("path", ())
        for name in self.document.get("read_at_import", ()):
            importlib.reload(sys.modules[name])


def _run_script(script: str) -> NoReturn:
    """Runs a script, and ends in order but for modules.

    To take those apart is to copy every page that is shared with the server.
    """
    code: object = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # the interpreter's own
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


def _peer(connection: socket.socket) -> int:
    """The process that asks."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process: int = _CREDENTIALS.unpack(credentials)[0]
    return process


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
        peer = _peer(connection)
        pid = os.fork()
        if pid == 0:
            self._leave(connection, request)
            if request.stands_in:
                _WALLS.join(peer, request.document["limits"])
            return request
        for stream in request.streams:
            os.close(stream)
        if request.stands_in:
            with suppress(OSError):
                os.setpgid(pid, pid)
            self._selector.register(connection, selectors.EVENT_READ, pid)
        else:
            with suppress(ConnectionError):
                connection.sendall(_STATUS.pack(pid))
        child = (pid, connection, request.stands_in)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, child)
        return None

    def _leave(self, connection: socket.socket, request: _Request) -> None:
        """Separates a child: its group or session, its end, none of the server's files."""
        if request.stands_in:
            with suppress(OSError):
                os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        elif request.document["session"]:
            os.setsid()
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

    def _conclude(self, pidfd: int, pid: int, connection: socket.socket, stands_in: bool) -> None:
        """Tells whoever asked how the child ended."""
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        if stands_in:
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
    for name in sys.argv[2:]:
        if name.endswith(".py"):
            runpy.run_path(name)
        else:
            importlib.import_module(name)
    gc.collect()
    # Collections in a child would write to, and so copy, all that it shares.
    gc.freeze()
    sys.stdout.flush()
    request = _Server(listener).serve()
    if request is not None:
        request.run()


if __name__ == "__main__":
    main()
