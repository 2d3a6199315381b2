"""Answers in a row from a service of the same process."""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NoReturn, Self

import grpc
from google.protobuf.message import Message

# As many answers wait as a reader may be behind, beside the one that it reads.
AHEAD = 8


class LocalContext:
    """Context of a handler's call."""

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: Sequence[tuple[str, str]] = (),
    ) -> NoReturn:
        """Ends the call with an error."""
        raise rpc_error(code, details, trailing_metadata)


class LocalStream:
    """What a caller holds of a stream: answers to iterate over, and a way to end it.

    The handler runs in a task with a context of its own, until its last answer, `cancel`, the
    cancellation of whoever waits for an answer, or the end of this object.
    """

    def __init__(self, answers: AsyncGenerator[Message], timeout: float | None):
        self._waiting: asyncio.Queue[Message | None] = asyncio.Queue(AHEAD)
        self._next: Message | None = None
        self._ended = False
        # Nothing of the caller but its metadata says who calls.
        self._task = asyncio.create_task(
            _run(answers, self._waiting, timeout), context=contextvars.Context()
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        answer = await self._coming()
        if answer is None:
            await self._raise_failure()
            raise StopAsyncIteration
        self._next = None
        return answer

    async def read(self) -> Any:
        """Takes the next answer, EOF after the last; raises AioRpcError."""
        return await anext(self, grpc.aio.EOF)

    async def wait_for_connection(self) -> None:
        """Waits for the first answer or the end; raises AioRpcError where that is an error."""
        if await self._coming() is None:
            await self._raise_failure()

    async def _coming(self) -> Message | None:
        """What is read next, None at the end."""
        if self._next is None and not self._ended:
            try:
                self._next = await self._waiting.get()
            except asyncio.CancelledError:
                self.cancel()
                raise
            self._ended = self._next is None
        return self._next

    async def _raise_failure(self) -> None:
        await asyncio.wait({self._task})
        if self._task.cancelled():
            raise rpc_error(grpc.StatusCode.CANCELLED, "The call was given up.")
        if error := self._task.exception():
            raise error

    def cancel(self) -> bool:
        """Ends the call; False where it has ended."""
        return self._task.cancel()

    def __del__(self) -> None:
        self._task.cancel()


async def _run(
    answers: AsyncGenerator[Message],
    waiting: "asyncio.Queue[Message | None]",
    timeout: float | None,
) -> None:
    """Hands over a copy of every answer, then None; raises AioRpcError."""
    try:
        async with asyncio.timeout(timeout), contextlib.aclosing(answers):
            async for answer in answers:
                await waiting.put(type(answer).FromString(answer.SerializeToString()))
    except asyncio.CancelledError:
        # Whoever gave it up reads no more; whoever still reads hears of the end at once.
        while not waiting.empty():
            waiting.get_nowait()
        raise
    except TimeoutError:
        raise rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
    except grpc.aio.AioRpcError:
        raise
    except Exception as error:
        raise rpc_error(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}") from error
    finally:
        await waiting.put(None)


def rpc_error(
    code: grpc.StatusCode, details: str, trailing: Sequence[tuple[str, str]] = ()
) -> grpc.aio.AioRpcError:
    """The error that a call over a channel would raise."""
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details=details
    )
