"""Response streams from a service of the same process."""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any, NoReturn, Self

import grpc
from google.protobuf.message import Message

# As many answers wait as a reader may be behind, beside the one that it reads.
AHEAD = 8


class LocalContext:
    """Context of a handler's call."""

    async def send_initial_metadata(self, metadata: Sequence[tuple[str, str]]) -> None:
        """Tells a caller who waits for the beginning that nothing is refused any more."""

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: Sequence[tuple[str, str]] = (),
    ) -> NoReturn:
        """Ends the call with an error."""
        raise rpc_error(code, details, trailing_metadata)


class _Beginning(LocalContext):
    """Context of a stream, whose caller may wait for its beginning."""

    def __init__(self) -> None:
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send_initial_metadata(self, metadata: Sequence[tuple[str, str]]) -> None:
        self.begin()

    def begin(self) -> None:
        """Signals that the call was not refused, unless the stream has already begun."""
        if not self.begun.done():
            self.begun.set_result(None)

    def refuse(self, error: grpc.aio.AioRpcError) -> None:
        """Says why there is nothing, unless something was said before."""
        if not self.begun.done():
            self.begun.set_exception(error)
            # Hardly anybody waits for the beginning alone.
            self.begun.exception()


class LocalStream:
    """The caller's side of a stream: responses to iterate over, and `cancel`.

    The handler runs in a task with a context of its own, until its last answer, `cancel`, the
    cancellation of a caller that waits for an answer, or the end of this object.
    """

    def __init__(
        self,
        handler: Callable[[Any, Any], AsyncGenerator[Message]],
        request: Message,
        timeout: float | None,
    ):
        context = _Beginning()
        self._begun = context.begun
        self._waiting: asyncio.Queue[Message | None] = asyncio.Queue(AHEAD)
        self._has_ended = False
        running = _run(handler(request, context), context, self._waiting, timeout)
        # Nothing of the caller but its metadata says who calls.
        self._task = asyncio.create_task(running, context=contextvars.Context())
        self._task.add_done_callback(partial(_conclude, context, self._waiting))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            answer = None if self._has_ended else await self._waiting.get()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if answer is not None:
            return answer
        self._has_ended = True
        await asyncio.wait({self._task})
        if self._task.cancelled():
            raise rpc_error(grpc.StatusCode.CANCELLED, "The call was cancelled.")
        if error := self._task.exception():
            raise error
        raise StopAsyncIteration

    async def read(self) -> Any:
        """Takes the next answer, EOF after the last; raises AioRpcError."""
        return await anext(self, grpc.aio.EOF)

    async def wait_for_connection(self) -> None:
        """Waits for the beginning; raises AioRpcError where the call is refused instead."""
        await asyncio.shield(self._begun)

    def cancel(self) -> bool:
        """Ends the call; False where it has ended."""
        return self._task.cancel()

    def __del__(self) -> None:
        self._task.cancel()


async def _run(
    answers: AsyncGenerator[Message],
    context: _Beginning,
    waiting: "asyncio.Queue[Message | None]",
    timeout: float | None,
) -> None:
    """Hands over a copy of every answer, then None; raises AioRpcError."""
    try:
        async with asyncio.timeout(timeout), contextlib.aclosing(answers):
            async for answer in answers:
                context.begin()
                await waiting.put(type(answer).FromString(answer.SerializeToString()))
    except asyncio.CancelledError:
        # A caller that gave up reads no more; one that still reads hears of the end at once.
        while not waiting.empty():
            waiting.get_nowait()
        context.refuse(rpc_error(grpc.StatusCode.CANCELLED, "The call was cancelled."))
        raise
    except grpc.aio.AioRpcError as error:
        context.refuse(error)
        raise
    except Exception as error:
        failure = _as_rpc_error(error)
        context.refuse(failure)
        raise failure from error
    finally:
        context.begin()
        await waiting.put(None)


def _conclude(
    context: _Beginning, waiting: "asyncio.Queue[Message | None]", task: asyncio.Task[None]
) -> None:
    """Ends a call that was cancelled before its handler ran at all."""
    if task.cancelled() and waiting.empty():
        context.refuse(rpc_error(grpc.StatusCode.CANCELLED, "The call was cancelled."))
        waiting.put_nowait(None)


def _as_rpc_error(error: Exception) -> grpc.aio.AioRpcError:
    if isinstance(error, TimeoutError):
        return rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
    return rpc_error(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}")


def rpc_error(
    code: grpc.StatusCode, details: str, trailing: Sequence[tuple[str, str]] = ()
) -> grpc.aio.AioRpcError:
    """The error that a call over a channel would raise."""
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details=details
    )
