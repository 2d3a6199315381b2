"""A command in a pod: Kubernetes' `v5.channel.k8s.io` over WebSocket."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpcore
import httpx

from windlass.client.errors import ConnectionFailed, translated
from windlass.client.resources.clusters import CONNECT_SECONDS, Kubernetes, status_error
from windlass.client.transport.websocket import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    Frames,
    ProtocolError,
    accept_of,
    frame,
    new_key,
)

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE, HALF_CLOSE = 0, 1, 2, 3, 4, 255
READ_BYTES = 64 * 1024
PING_SECONDS = 20.0

Sink = Callable[[int, bytes], Awaitable[None]]


class CommandFailed(Exception):
    """The command could not be run to its end; says why."""


class Exec:
    """A command that runs: bytes go in and out, and it ends with an exit code."""

    def __init__(self, stream: Any):
        self._stream = stream
        self._sending = asyncio.Lock()

    async def send(self, data: bytes) -> None:
        """Bytes of its standard input."""
        await self._frame(BINARY, bytes([STDIN]) + data)

    async def end_input(self) -> None:
        """Ends its standard input, while it goes on."""
        await self._frame(BINARY, bytes([HALF_CLOSE, STDIN]))

    async def resize(self, columns: int, rows: int) -> None:
        """Tells it of a new size of its terminal."""
        size = json.dumps({"Width": columns, "Height": rows}).encode()
        await self._frame(BINARY, bytes([RESIZE]) + size)

    async def run(self, sink: Sink) -> int:
        """Gives `sink` what it prints (STDOUT or STDERR, bytes); returns its exit code.

        Raises CommandFailed when it does not come to one, ConnectionFailed.
        """
        frames, beats = Frames(), asyncio.create_task(self._beat())
        try:
            while data := await self._read():
                for opcode, payload in frames.feed(data):
                    if opcode == PING:
                        await self._frame(PONG, payload)
                    elif opcode == CLOSE:
                        raise CommandFailed("The cluster closed the connection.")
                    elif opcode != PONG and payload:
                        channel, content = payload[0], payload[1:]
                        if channel == STATUS:
                            return exit_code(content)
                        if channel in (STDOUT, STDERR) and content:
                            await sink(channel, content)
        except ProtocolError as error:
            raise ConnectionFailed(str(error)) from error
        finally:
            beats.cancel()
        raise CommandFailed("The connection was cut before the command ended.")

    async def _beat(self) -> None:
        # So that no proxy on the way takes a silent command for a dead one.
        while True:
            await asyncio.sleep(PING_SECONDS)
            await self._frame(PING, b"")

    async def _read(self) -> bytes:
        with _cut():
            data: bytes = await self._stream.read(READ_BYTES)
        return data

    async def _frame(self, opcode: int, payload: bytes) -> None:
        async with self._sending:
            with _cut():
                await self._stream.write(frame(opcode, payload))


@contextmanager
def _cut() -> Iterator[None]:
    """The upgraded stream is below httpx, and so are its errors."""
    try:
        yield
    except (httpcore.NetworkError, OSError) as error:
        raise ConnectionFailed(f"The connection was cut: {error}") from error


def exit_code(status: bytes) -> int:
    """The exit code in a Status object; raises CommandFailed when there is none."""
    try:
        found = json.loads(status)
        if found.get("status") == "Success":
            return 0
        if found.get("reason") == "NonZeroExitCode":
            causes = found["details"]["causes"]
            return int(next(one["message"] for one in causes if one["reason"] == "ExitCode"))
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise CommandFailed("The cluster did not say how the command ended.") from error
    raise CommandFailed(str(found.get("message") or "The command could not be run."))


@asynccontextmanager
async def executing(
    kubernetes: Kubernetes,
    pod: str,
    container: str,
    command: list[str],
    *,
    stdin: bool = False,
    tty: bool = False,
) -> AsyncIterator[Exec]:
    """Starts a command; raises WindlassError for a refusal, ConnectionFailed."""
    key = new_key()
    params: dict[str, str | bool | list[str]] = {
        "container": container,
        "stdin": stdin,
        "stdout": True,
        # A terminal has one output.
        "stderr": not tty,
        "tty": tty,
        "command": command,
    }
    headers = {
        **await asyncio.to_thread(kubernetes.authorization),
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Protocol": PROTOCOL,
    }
    timeout = httpx.Timeout(CONNECT_SECONDS, read=None)
    url = kubernetes.url("pods", pod, "exec")
    async with httpx.AsyncClient(verify=kubernetes.tls, timeout=timeout) as http:
        with translated():
            async with http.stream("GET", url, params=params, headers=headers) as response:
                await _check(response, key)
                yield Exec(response.extensions["network_stream"])


async def _check(response: httpx.Response, key: str) -> None:
    if response.status_code != 101:
        await response.aread()
        try:
            body = response.json()
        except ValueError:
            body = None
        raise status_error(response.status_code, body)
    accepted = response.headers.get("sec-websocket-accept")
    if accepted != accept_of(key) or response.headers.get("sec-websocket-protocol") != PROTOCOL:
        raise ConnectionFailed("The cluster's response is not a valid WebSocket handshake.")
