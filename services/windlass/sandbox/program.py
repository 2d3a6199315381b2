"""One grader's code in a process of its own, asked by lines; whatever it does, it is answered."""

import json
import secrets
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from windlass.core.telemetry import logger
from windlass.graders import Fault, Ungradable
from windlass.sandbox.bubblewrap import Sandbox
from windlass.sandbox.limits import SandboxLimits

log = logger("sandbox")
_LINE = 4096
_START_SECONDS = 30.0


class NotStarted(Exception):
    """The sandbox itself failed; the message is for operators."""


class _Reply(Struct, forbid_unknown_fields=True):
    score: float | None = None
    error: Annotated[str, Meta(max_length=1000)] | None = None


class Program:
    """A tenant's `grade`. Its process is kept, and replaced where it hangs or dies.

    One thread asks at a time; another may close it meanwhile.
    """

    def __init__(self, sandbox: Sandbox, source: str, limits: SandboxLimits | None = None) -> None:
        self._sandbox = sandbox
        self._source = source
        self._limits = limits or SandboxLimits()
        self._process: subprocess.Popen[bytes] | None = None
        self._worked = 0.0
        self._closed = False

    def grade(self, sample: str, item: Mapping[str, Any]) -> float:
        """Returns the finite number that `grade` gives; raises Ungradable."""
        try:
            process = self.start()
        except NotStarted as error:
            log.warning("sandbox_start_failed", error=str(error))
            raise Ungradable(Fault.PYTHON_SERVER, "start: The sandbox did not start.") from error
        name = secrets.token_hex(8).encode()
        began = time.monotonic()
        request = b"%s %s\n" % (name, json.dumps([sample, item]).encode())
        line = _ask(process, request, self._limits.seconds)
        took = time.monotonic() - began
        self._worked += took
        reply = _read(line, name)
        if reply is None:
            self._stop()
            raise Ungradable(Fault.PYTHON_SERVER, self._end(line, took))
        if reply.score is None:
            raise Ungradable(Fault.PYTHON_RUNTIME, reply.error or "")
        return reply.score

    def start(self) -> subprocess.Popen[bytes]:
        """Returns the process, a fresh one where there is none fit to be asked; raises NotStarted.

        A process that died since its last answer did not die of the next question.
        """
        process = self._process
        if process and process.poll() is None and self._worked < self._limits.life_seconds:
            return process
        self._stop()
        if self._closed:
            raise NotStarted("it is closed")
        self._worked = 0.0
        try:
            self._process = process = self._sandbox.start(self._limits)
        except OSError as error:
            raise NotStarted(str(error)) from error
        task = {"source": self._source, "limits": self._limits.rlimits()}
        if _ask(process, json.dumps(task).encode() + b"\n", _START_SECONDS) != b"ready\n":
            process.kill()
            _, errors = _streams(process)
            words = errors.read(_LINE).decode(errors="replace").strip()
            self._stop()
            raise NotStarted(words or "it said nothing")
        return process

    def close(self) -> None:
        """Ends the process and the calls that wait for it; no other is started."""
        self._closed = True
        self._stop()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, *_streams(process)):
                with suppress(OSError):
                    if stream:
                        stream.close()

    def _end(self, line: bytes, took: float) -> str:
        if took >= self._limits.seconds:
            return f"timeout: grade took longer than {self._limits.seconds:g} seconds."
        if not line:
            return "exit: The process of grade ended before it answered."
        return "protocol: grade wrote where its answer was awaited."


def _ask(process: subprocess.Popen[bytes], request: bytes, seconds: float) -> bytes:
    """The next line of a process, or what there is of one by then."""
    replies, _ = _streams(process)
    # Without its process a pipe ends, and so does every wait for it.
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        if process.stdin:
            process.stdin.write(request)
            process.stdin.flush()
        return replies.readline(_LINE)
    except (OSError, ValueError):
        # Ended, or closed by another thread.
        return b""
    finally:
        timer.cancel()


def _streams(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdout is None or process.stderr is None:
        raise TypeError("the process has no pipes")
    return process.stdout, process.stderr


def _read(line: bytes, name: bytes) -> _Reply | None:
    """The answer to the question of that name, if it is one."""
    said, _, body = line.partition(b" ")
    if said != name or not body.endswith(b"\n"):
        return None
    try:
        reply = msgspec.json.decode(body, type=_Reply)
    except (msgspec.DecodeError, UnicodeError):
        return None
    return reply if (reply.score is None) != (reply.error is None) else None
