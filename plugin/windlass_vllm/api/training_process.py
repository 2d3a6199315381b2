"""The training worker as the API server sees it: a child process and a socket."""

import asyncio
import contextlib
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from windlass_vllm import settings
from windlass_vllm.messages import (
    MOST_BYTES,
    FromWorker,
    ToWorker,
    WorkerStart,
    frames,
    from_worker,
)

_MODULE = "windlass_vllm.training.worker"
_DRAIN_MS = 200


class TrainingProcess:
    """A started worker; `messages` ends when it died."""

    def __init__(
        self, process: asyncio.subprocess.Process, socket: zmq.asyncio.Socket, token: bytes
    ) -> None:
        self._process, self._socket, self._token = process, socket, token
        self._peer = b""

    @classmethod
    async def start(
        cls, folder: Path, key: bytes, generation: int, chosen: settings.EngineTrainingSettings
    ) -> "TrainingProcess":
        """Starts a worker for the weights of a generation."""
        token = secrets.token_bytes(32)
        path = folder / f"worker-{secrets.token_hex(4)}"
        socket = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
        socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(f"ipc://{path}")
        words = WorkerStart(
            str(folder),
            str(path),
            token,
            key,
            generation,
            chosen.threads,
            chosen.memory_mib * 2**20,
            chosen.niceness,
        )
        command = (sys.executable, "-m", _MODULE)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, env=settings.passed_on()
        )
        if process.stdin is not None:
            process.stdin.write(msgspec.json.encode(words) + b"\n")
        return cls(process, socket, token)

    @property
    def is_alive(self) -> bool:
        """Returns whether the worker runs."""
        return self._process.returncode is None

    async def send(self, message: ToWorker) -> None:
        """Sends a message to a worker that has said it is ready."""
        with contextlib.suppress(zmq.ZMQError):
            await self._socket.send_multipart([self._peer, *frames(message, self._token)])

    async def messages(self) -> AsyncIterator[FromWorker]:
        """Yields what the worker says, up to its last word when it dies."""
        died = asyncio.ensure_future(self._process.wait())
        try:
            while await self._readable(died):
                peer, *received = await self._socket.recv_multipart()
                if (message := from_worker(received, self._token)) is not None:
                    self._peer = peer
                    yield message
        finally:
            died.cancel()

    async def kill(self) -> None:
        """Ends the worker, in the middle of whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    def close(self) -> None:
        """Closes the socket of a worker that was killed."""
        self._socket.close()

    async def _readable(self, died: "asyncio.Future[int]") -> bool:
        """Waits for a message; False once the worker is dead and all that it said was read."""
        if not died.done():
            polled: asyncio.Future[Any] = asyncio.ensure_future(self._socket.poll())
            try:
                await asyncio.wait({died, polled}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                polled.cancel()
        return bool(await self._socket.poll(_DRAIN_MS if died.done() else None))
