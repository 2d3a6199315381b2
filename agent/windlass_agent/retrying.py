"""Trying again: whether it can help, and loops that always do."""

from collections.abc import Awaitable, Callable

import grpc

from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass.core.errors import from_rpc
from windlass.metrics.process import LOOP_FAILURES

_log = telemetry.logger("agent")

_FINAL = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)


def is_final(error: grpc.aio.AioRpcError) -> bool:
    """Returns True if the same call can only fail again."""
    return error.code() in _FINAL


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """The stable reason that the control plane gave."""
    return from_rpc(error).reason


async def run_forever(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """A loop of ours until cancelled, begun again should it fail: without it we are blind."""
    backoff = Backoff()
    while True:
        try:
            await work()
        except Exception as error:
            LOOP_FAILURES.labels(f"agent {name}").inc()
            _log.error("loop_failed", loop=name, exc_info=error)
        await backoff.pause()
