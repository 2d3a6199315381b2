"""An attempt's log on its way from the kubelet to the control plane, each byte once."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import grpc

from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass_agent.executors.kubernetes.observe.snapshot import PodSnapshot
from windlass_agent.executors.kubernetes.overlay import CONTAINER
from windlass_agent.kube import Invalid, Kube, KubeError, ResourceNotFound
from windlass_agent.kube.resources import PODS
from windlass_agent.retrying import is_final, reason_of

PIECE_BYTES = 64 * 1024
# Of one attempt. The control plane keeps less, and says in the log where it ends.
MAX_BYTES = 33 * 2**20
# Read ahead of what is stored; beyond it the kubelet waits.
BUFFER_BYTES = 1024 * 1024
FLUSH_SECONDS = 0.5
TAIL_LINES = 20

# Takes bytes that begin at an offset; answers how many bytes are stored in all.
Append = Callable[[int, bytes], Awaitable[int]]

_log = telemetry.logger("logs")


class KubeletLogParser:
    """Strips the kubelet's timestamps from a log and skips lines that were read before.

    Stamps have nine digits, so that they are ordered as texts.
    """

    def __init__(self, skip: int):
        self._skip = skip
        self._head = bytearray()
        self._inside = False
        self._dropping = False
        # Of the newest line, and how many bytes came since the first line that bears it.
        self.stamp = ""
        self._since_stamp = 0

    def resume(self) -> None:
        """The log will begin again at the newest stamp, or before it in the same second."""
        self._skip += self._since_stamp
        self._since_stamp = 0
        self._head.clear()
        self._inside = False

    def finish(self) -> bytes:
        """Terminates an incomplete last line."""
        return self.feed(b"\n") if self._inside else b""

    def feed(self, part: bytes) -> bytes:
        """The new bytes in a part of the log."""
        fresh = bytearray()
        position = 0
        while position < len(part):
            if not self._inside:
                end = part.find(b" ", position)
                self._head += part[position : end if end >= 0 else len(part)]
                if end < 0:
                    break
                self._begin(self._head.decode(errors="replace"))
                self._head.clear()
                position = end + 1
                continue
            end = part.find(b"\n", position) + 1
            self._inside = end == 0
            end = end or len(part)
            if not self._dropping:
                fresh += self._new(part[position:end])
            position = end
        return bytes(fresh)

    def _begin(self, stamp: str) -> None:
        self._inside = True
        # Once a container is gone, a kubelet answers with words of its own in place of its log.
        is_word = not stamp[:1].isdigit()
        self._dropping = is_word or stamp < self.stamp
        if not is_word and stamp > self.stamp:
            self.stamp, self._since_stamp = stamp, 0

    def _new(self, text: bytes) -> bytes:
        self._since_stamp += len(text)
        skipped = min(self._skip, len(text))
        self._skip -= skipped
        return text[skipped:]


class LogShipper:
    """Ships the log of an attempt's first pod until the pod has ended and all is stored.

    The receiver's count is the truth, so neither a repeat nor a restart of the agent doubles
    anything. When the attempt failed, the last lines of its other pods come after it.
    """

    def __init__(
        self,
        kube: Kube,
        append: Append,
        *,
        pod: Callable[[], PodSnapshot | None],
        others: Callable[[], Sequence[PodSnapshot]],
    ):
        self._kube = kube
        self._append = append
        self._pod = pod
        self._others = others
        self._buffer = bytearray()
        self._offset = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False

    async def run(self) -> None:
        """Returns when all is stored, or nothing more is accepted."""
        try:
            self._offset = await self._store(0, b"")
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send())
                await self._read(KubeletLogParser(self._offset))
                self._closed = True
                self._arrived.set()
        except* _LogRefused as refusals:
            _log.info("log_refused", reason=str(refusals.exceptions[0]))

    async def _read(self, lines: KubeletLogParser) -> None:
        backoff = Backoff(longest=5.0)
        name = ""
        while (pod := self._pod()) is not None:
            if name not in ("", pod.name) or self._offset > MAX_BYTES:
                break
            name = pod.name
            try:
                await self._follow(pod, lines)
                # Read after the end was seen, so nothing can be missing.
                if pod.ended:
                    break
            except ResourceNotFound:
                break
            except Invalid as error:
                # Its container has not begun, or left nothing.
                if pod.ended:
                    break
                _log.debug("log_not_ready", pod=pod.name, message=error.message)
            except KubeError as error:
                _log.info("log_stream_lost", pod=pod.name, message=error.message)
            lines.resume()
            await backoff.pause()
        others = self._others()
        if others:
            await self._put(lines.finish())
        for pod in others:
            await self._put(lines.feed(await self._tail(pod)))

    async def _follow(self, pod: PodSnapshot, lines: KubeletLogParser) -> None:
        parts = self._kube.stream_log(
            PODS.path(pod.namespace, pod.name),
            container=CONTAINER,
            follow=True,
            timestamps=True,
            since=lines.stamp,
        )
        async with aclosing(parts):
            async for part in parts:
                await self._put(lines.feed(part))
                if self._offset > MAX_BYTES:
                    return

    async def _tail(self, pod: PodSnapshot) -> bytes:
        """The last lines of another pod, each as if it came a second after all others."""
        text = bytearray()
        path = PODS.path(pod.namespace, pod.name)
        with contextlib.suppress(KubeError):
            parts = self._kube.stream_log(path, container=CONTAINER, tail_lines=TAIL_LINES)
            async with aclosing(parts):
                async for part in parts:
                    text += part[: PIECE_BYTES - len(text)]
        if not text:
            return b""
        title = f"[the last lines of node {pod.rank}]".encode()
        return b"".join(b"9 " + line + b"\n" for line in (title, *bytes(text).splitlines()))

    async def _put(self, fresh: bytes) -> None:
        if not fresh:
            return
        while len(self._buffer) >= BUFFER_BYTES:
            self._room.clear()
            await self._room.wait()
        self._buffer += fresh
        self._arrived.set()

    async def _send(self) -> None:
        while True:
            await self._arrived.wait()
            if not self._closed and len(self._buffer) < PIECE_BYTES:
                # So that a chatty job is stored by the half second and not by the line.
                await asyncio.sleep(FLUSH_SECONDS)
            if not self._buffer:
                if self._closed:
                    return
                self._arrived.clear()
                continue
            piece = bytes(self._buffer[:PIECE_BYTES])
            stored = await self._store(self._offset, piece)
            if stored < self._offset:
                raise _LogRefused("log_gap")
            taken = min(stored - self._offset, len(self._buffer))
            del self._buffer[:taken]
            self._offset += taken
            self._room.set()

    async def _store(self, offset: int, data: bytes) -> int:
        backoff = Backoff()
        while True:
            try:
                return await self._append(offset, data)
            except grpc.aio.AioRpcError as error:
                if is_final(error):
                    raise _LogRefused(reason_of(error)) from error
            await backoff.pause()


class _LogRefused(Exception):
    """The control plane accepts no more of this log."""
