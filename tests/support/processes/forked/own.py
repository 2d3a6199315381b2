"""Forks that are processes of their own, by the interface of subprocess."""

import contextlib
import json
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!i")
_PIECE = 65536


class Fork:
    """A child of a fork server, which reaps it: its pid, and how it ended.

    `program` is a request's: the module or the script that runs, with its arguments. `python` is
    what it takes for its interpreter, by default that of the tests.
    """

    def __init__(
        self,
        address: Path,
        program: Mapping[str, Any],
        *,
        streams: Sequence[int],
        environment: Mapping[str, str],
        folder: Path,
        session: bool = False,
        python: Path | None = None,
    ) -> None:
        umask = os.umask(0)
        os.umask(umask)
        request = {
            **program,
            "stands_in": False,
            "executable": str(python or sys.executable),
            "environment": dict(environment),
            "folder": str(folder),
            "umask": umask,
            "session": session,
        }
        document = json.dumps(request).encode()
        self._lock = threading.Lock()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(str(address))
        socket.send_fds(self._server, [_LENGTH.pack(len(document))], list(streams))
        self._server.sendall(document)
        self.pid = self._number()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Returns its exit code, negative for a signal; None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Returns its exit code; raises subprocess.TimeoutExpired."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        told = select.poll()
        told.register(self._server, select.POLLIN)
        if self.returncode is None and told.poll(None if timeout is None else timeout * 1000):
            # Of several that wait one reads it.
            with self._lock:
                self.returncode = self._number() if self.returncode is None else self.returncode
        return self.returncode

    def _number(self) -> int:
        told = self._server.recv(_NUMBER.size)
        if not told:
            raise RuntimeError("the fork server is gone")
        number: int = _NUMBER.unpack(told)[0]
        return number


def run(
    address: Path, program: Mapping[str, Any], *, given: str, timeout: float, **place: Any
) -> "subprocess.CompletedProcess[str]":
    """Runs a program to its end as subprocess.run does, with its streams captured."""
    deadline = time.monotonic() + timeout
    with _pipe() as (stdin, feed), _pipe() as (out, stdout), _pipe() as (err, stderr):
        theirs = (stdin, stdout, stderr)
        fork = Fork(address, program, streams=[one.fileno() for one in theirs], **place)
        for one in theirs:
            one.close()
        try:
            said = _exchange(feed, given.encode(), (out, err), deadline)
            code = fork.wait(max(0.0, deadline - time.monotonic()))
        except BaseException:
            fork.kill()
            raise
    return subprocess.CompletedProcess(program["arguments"], code, *said)


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[FileIO, FileIO]]:
    reading, writing = os.pipe()
    with FileIO(reading, "rb") as end, FileIO(writing, "wb") as start:
        yield end, start


def _exchange(
    feed: FileIO, given: bytes, outputs: Sequence[FileIO], deadline: float
) -> Iterator[str]:
    """Writes what is given, and returns what each output said to its end."""
    said = {one: bytearray() for one in outputs}
    rest = memoryview(given)
    with selectors.DefaultSelector() as selector:
        selector.register(feed, selectors.EVENT_WRITE)
        for one in outputs:
            selector.register(one, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired("a fork", deadline)
            for key, _ in ready:
                file = key.fileobj
                assert isinstance(file, FileIO)
                if file is feed:
                    rest = _fed(feed, rest)
                    more = bool(rest)
                else:
                    piece = file.read(_PIECE) or b""
                    said[file] += piece
                    more = bool(piece)
                if not more:
                    selector.unregister(file)
                    file.close()
    return (_text(bytes(one)) for one in said.values())


def _fed(feed: FileIO, rest: memoryview) -> memoryview:
    """Writes what a pipe takes at once; returns the rest, nothing where nobody reads."""
    try:
        return rest[feed.write(rest[: select.PIPE_BUF]) or 0 :]
    except BrokenPipeError:
        return rest[:0]


def _text(said: bytes) -> str:
    return said.decode().replace("\r\n", "\n").replace("\r", "\n")
