"""Calls from a process to services of its own, without a socket in between.

A call over gRPC within one process costs as much processor time as what it asks for. Everything
else is as over a socket: the boundary, a context of its own, copies of the messages, a deadline.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
from google.protobuf.message import Message

from windlass.core.rpc.interceptor import Boundary
from windlass.core.rpc.local_stream import LocalContext, LocalStream, rpc_error

Pairs = Sequence[tuple[str, str]]


class LocalServices:
    """The methods with one request that this process serves, for its own calls."""

    def __init__(self, boundary: Boundary):
        self._boundary = boundary
        self._handlers: dict[str, Any] = {}

    def add(self, servicer: object, register: Callable[[Any, Any], None]) -> None:
        """Adds a servicer with the function that its generated module has for it."""
        register(servicer, self)

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """Takes what generated code gives a server beside the handlers by name."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Takes the handlers of a service from generated code."""
        for name, handler in handlers.items():
            if not handler.request_streaming:
                self._handlers[f"/{service}/{name}"] = handler

    def serves(self, method: str) -> bool:
        """True if `/package.Service/Method` takes one request, and this process answers it."""
        return method in self._handlers

    async def call(self, method: str, request: Message, *, metadata: Pairs, timeout: float) -> Any:
        """The answer to a request; raises AioRpcError as a channel does."""
        handler = self._handlers[method]
        inner = self._boundary.unary(method, dict(metadata), handler.unary_unary)
        copied = handler.request_deserializer(request.SerializeToString())
        # Nothing of the caller but its metadata says who calls.
        task = asyncio.create_task(_answer(inner, copied), context=contextvars.Context())
        try:
            async with asyncio.timeout(timeout):
                answer = await task
        except TimeoutError:
            raise rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise rpc_error(grpc.StatusCode.CANCELLED, "The call was cancelled.") from None
        return type(answer).FromString(answer.SerializeToString())

    def stream(
        self,
        method: str,
        request: Message,
        *,
        metadata: Pairs,
        timeout: float | None = None,
        wait_for_ready: bool = True,
    ) -> LocalStream:
        """The answers to a request; raises AioRpcError as a channel's call does.

        What is served here is ready, so there is nothing to wait for.
        """
        handler = self._handlers[method]
        inner: Callable[[Any, Any], Any] = self._boundary.streaming(
            method, dict(metadata), handler.unary_stream
        )
        copied = handler.request_deserializer(request.SerializeToString())
        return LocalStream(inner, copied, timeout)


async def _answer(inner: Callable[[Any, Any], Awaitable[Any]], request: Message) -> Any:
    try:
        return await inner(request, LocalContext())
    except grpc.aio.AioRpcError:
        raise
    except Exception as error:
        raise rpc_error(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}") from error
