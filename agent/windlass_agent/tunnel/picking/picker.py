"""Client of one endpoint picker, which may hang, lie or be gone at any moment."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import Message

from windlass.api.picker.v1 import ext_proc_pb2 as pb
from windlass.core import telemetry
from windlass.core.rpc.clients import TRANSPORT_OPTIONS
from windlass_agent.executors.kubernetes.engine_settings import PickerSettings
from windlass_agent.tunnel.picking.ext_proc import METHOD, answer_end, answer_head, destination

# It repeats the body in pieces, and each of them with every header that it was sent.
MESSAGE_BYTES = 256 * 1024
# Of one request: those pieces, and a few words about its answer.
MAX_MESSAGES = 64
# Of bodies in questions at once.
MAX_ASKED_BYTES = 64 * 1024 * 1024
# After so many failures in a row it is left alone for a while.
FAILURES, REST_SECONDS = 3, 5.0
# For the picker to take the end of an answer.
END_SECONDS = 5.0
# Without keepalives: servers in Go hang up on who pings more often than each five minutes.
_OPTIONS = (
    *TRANSPORT_OPTIONS,
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)

log = telemetry.logger("picker")
Call = grpc.aio.StreamStreamCall[Message, pb.ProcessingResponse]


class PickerFailed(Exception):
    """A picker that did not answer in time, or not as the protocol has it; `outcome` says which."""

    def __init__(self, outcome: str, message: str):
        super().__init__(message)
        self.outcome = outcome


class PickedRequest:
    """A request that a picker counts as open until it is told of the end, by `tell`."""

    def __init__(self, call: Call):
        self._call = call
        self._told: asyncio.Queue[pb.ProcessingRequest | None] = asyncio.Queue()
        # Set at the end of the answer: the picker may take no more of what it is told.
        self._overdue: asyncio.TimerHandle | None = None

    def answered(self, status: int, content_type: str) -> None:
        """Tells it that the answer has begun."""
        self._told.put_nowait(answer_head(status, content_type))

    def ended(self) -> None:
        """Tells it that the answer is complete."""
        self._overdue = asyncio.get_running_loop().call_later(END_SECONDS, self._call.cancel)
        self._told.put_nowait(answer_end())
        self._told.put_nowait(None)

    def dropped(self) -> None:
        """Ends it, unless it has ended: the request went elsewhere, or was cut."""
        if self._overdue is None:
            self._call.cancel()

    async def tell(self) -> None:
        """Passes on what there is to tell, until the end; raises nothing of the picker's."""
        hearing = asyncio.create_task(self._hear())
        try:
            while (message := await self._next(hearing)) is not None:
                await self._call.write(message)
            await self._call.done_writing()
            await hearing
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            log.debug("picker_hung_up", error=repr(error))
        finally:
            hearing.cancel()
            self._call.cancel()
            if self._overdue is not None:
                self._overdue.cancel()

    async def _next(self, hearing: "asyncio.Task[None]") -> pb.ProcessingRequest | None:
        """The next message; None once there is none, or the picker has ended the call."""
        waiting = asyncio.create_task(self._told.get())
        try:
            await asyncio.wait((waiting, hearing), return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            waiting.cancel()

    async def _hear(self) -> None:
        """Drops what the picker says, so that its words hold up nothing; not without an end."""
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            for _ in range(MAX_MESSAGES):
                if await self._call.read() is grpc.aio.EOF:
                    return


class Picker:
    """The picker of one pool; call inside an event loop."""

    def __init__(self, settings: PickerSettings):
        self._settings = settings
        self._channel = _channel(settings)
        self._process: Callable[[], Call] = self._channel.stream_stream(
            METHOD,
            request_serializer=pb.ProcessingRequest.SerializeToString,
            response_deserializer=pb.ProcessingResponse.FromString,
        )
        self._telling: set[asyncio.Task[None]] = set()
        self._asked_bytes = self._failures = 0
        self._rests_until = 0.0

    async def ask(self, parts: list[pb.ProcessingRequest]) -> tuple[str, PickedRequest]:
        """The endpoints that it names for a request; raises PickerFailed, PickerRefused."""
        if asyncio.get_running_loop().time() < self._rests_until:
            raise PickerFailed("resting", "it failed too often just now")
        size = sum(len(part.request_body.body) for part in parts)
        if self._asked_bytes + size > MAX_ASKED_BYTES:
            raise PickerFailed("busy", "it has too many questions to answer")
        self._asked_bytes += size
        call = self._process()
        try:
            endpoints = await self._answer(call, parts)
            self._failures = 0
        except BaseException:
            call.cancel()
            raise
        finally:
            self._asked_bytes -= size
        picked = PickedRequest(call)
        self._telling.add(task := asyncio.create_task(picked.tell()))
        task.add_done_callback(self._telling.discard)
        return endpoints, picked

    async def close(self) -> None:
        """Ends its calls and its connection."""
        for task in (told := tuple(self._telling)):
            task.cancel()
        await asyncio.gather(*told, return_exceptions=True)
        await self._channel.close()

    async def _answer(self, call: Call, parts: list[pb.ProcessingRequest]) -> str:
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                for part in parts:
                    await call.write(part)
                for _ in range(MAX_MESSAGES):
                    answer: Any = await call.read()
                    if answer is grpc.aio.EOF:
                        break
                    if endpoints := destination(answer):
                        return endpoints
        except TimeoutError as error:
            raise self._failed("timeout", "it did not answer in time") from error
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise self._failed("failed", _said(error)) from error
        raise self._failed("failed", "it named no endpoint")

    def _failed(self, outcome: str, message: str) -> PickerFailed:
        self._failures += 1
        if self._failures >= FAILURES:
            self._failures = 0
            self._rests_until = asyncio.get_running_loop().time() + REST_SECONDS
            log.warning("picker_rests", picker=self._settings.address, error=message)
        return PickerFailed(outcome, message)


def _said(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {(error.details() or '')[:300]}"
    return repr(error)


def _channel(settings: PickerSettings) -> grpc.aio.Channel:
    if not settings.ca:
        return grpc.aio.insecure_channel(settings.address, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(settings.ca.encode())
    return grpc.aio.secure_channel(settings.address, credentials, options=_OPTIONS)
