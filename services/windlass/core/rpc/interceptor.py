"""The interceptor of every RPC: authentication, authorization, errors and metrics.

Servicers hold no authorization and no try/except, since both are here.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

import grpc
from prometheus_client import Counter, Gauge, Histogram
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from windlass.api.auth.v1 import auth_pb2 as pb
from windlass.core import clock, ids, telemetry
from windlass.core.errors import (
    AppError,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    from_rpc,
    to_metadata,
)
from windlass.core.objects import (
    ObjectMismatch,
    ObjectNotFound,
    ObjectStoreError,
    ObjectTooLarge,
    StorageFull,
)
from windlass.core.rpc import audited, auth
from windlass.core.rpc.rules import asks_fresh_sign_in, is_change, rule_of, split
from windlass.metrics import rpc

log = telemetry.logger("rpc")
Context = grpc.aio.ServicerContext[Any, Any]
# How a message is read, and how one is written.
Codec = tuple[Callable[[bytes], Any], Callable[[Any], bytes]]
OPEN_SERVICES = ("grpc.health.v1.", "grpc.reflection.")
# Only these may stream both ways: nothing of it can be audited by its one request.
DUPLEX_AUDIENCES = (
    pb.AUDIENCE_AGENT,
    pb.AUDIENCE_INTERNAL,
    pb.AUDIENCE_GATEWAY,
    pb.AUDIENCE_CONNECTING,
)


class Gate(Protocol):
    """Decides who is calling, for the audiences that a process serves."""

    async def admit(self, rule: pb.Rule, metadata: dict[str, str]) -> None:
        """Sets the caller of this task; raises Unauthenticated when there is none."""


class AuditSink(Protocol):
    """Takes what a tenant changed, or tried to, and what it was refused."""

    def record(
        self, method: str, request: Any, outcome: str, reason: str = "", *, answer: Any = None
    ) -> None:
        """Records one call of the current caller; never waits."""

    def refuse(self, principal: auth.Principal, action: str, error: AppError, address: str) -> None:
        """Records the refusal of a known caller that no RPC was asked about; never waits."""

    def note(
        self, organization_id: str, project_id: str, action: str, change: audited.AuditedChange
    ) -> None:
        """Records what a service does for a tenant without a caller of theirs; never waits."""

    async def kept(self) -> None:
        """Return when what was recorded is on disk."""


# To look one up by its labels costs as much as a small RPC's own work.
@lru_cache(maxsize=1024)
def _seconds(method: str) -> Histogram:
    return rpc.SECONDS.labels(*split(method))


@lru_cache(maxsize=1024)
def _streams(method: str) -> Gauge:
    return rpc.STREAMS.labels(*split(method))


@lru_cache(maxsize=4096)
def _handled(method: str, outcome: str) -> Counter:
    return rpc.HANDLED.labels(*split(method), outcome)


def _is_audited(rule: pb.Rule, outcome: str, failure: AppError | None) -> bool:
    """Returns True for a change, tried or made, for what a known caller may not read, and for
    what it read of others.
    """
    if is_change(rule):
        return True
    if outcome == "OK" and rule.audited_for:
        return auth.current().may(rule.audited_for)
    return rule.audience == pb.AUDIENCE_TENANT and isinstance(failure, PermissionDenied)


def _lacking(principal: auth.Principal, permission: str) -> PermissionDenied:
    if principal.is_weakened:
        return PermissionDenied(
            f"This needs the permission {permission}. If a role of yours grants it, sign in anew "
            "as your organization asks of administrators: windlass auth login --web --fresh.",
            reason="sign_in_too_weak",
        )
    return PermissionDenied(f"This needs the permission {permission}.")


def _require_fresh(principal: auth.Principal, rule: pb.Rule, request: Any) -> None:
    """Raises PermissionDenied for a dangerous step in a session that was signed in to long ago."""
    until = principal.fresh_until
    if until is None or until > clock.now_seconds() or not asks_fresh_sign_in(rule, request):
        return
    raise PermissionDenied(
        "This step asks for a sign-in that is more recent than yours. Show again who you are, then "
        "repeat it: windlass auth login --web --fresh, or /login?fresh=true in a browser."
        if until
        else "This step asks for a recent sign-in, and your issuer does not say when you showed "
        "who you are (auth_time). Have it say so, take an API key, or ask the operator about "
        "sign_in.fresh_seconds.",
        reason="fresh_sign_in_required",
    )


class Boundary(grpc.aio.ServerInterceptor):
    """Wraps every handler of a server."""

    def __init__(
        self,
        gate: Gate,
        audit: AuditSink | None = None,
        *,
        stream_codecs: Mapping[Any, Codec] | None = None,
    ):
        """`stream_codecs` replace the codec of two-way streams, by generated deserializer."""
        self._gate = gate
        self._audit = audit
        self._stream_codecs = stream_codecs or {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Replaces the handler by one that passes the boundary first."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.lstrip("/").startswith(OPEN_SERVICES):
            return handler
        metadata = {
            key: value
            for key, value in handler_call_details.invocation_metadata or ()
            if isinstance(value, str)
        }
        codecs = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.request_streaming:
            duplex = self._duplex(method, metadata, handler.stream_stream)
            if codec := self._stream_codecs.get(handler.request_deserializer):
                codecs = {"request_deserializer": codec[0], "response_serializer": codec[1]}
            return grpc.stream_stream_rpc_method_handler(duplex, **codecs)
        if handler.response_streaming:
            streaming = self.streaming(method, metadata, handler.unary_stream)
            return grpc.unary_stream_rpc_method_handler(streaming, **codecs)
        unary = self.unary(method, metadata, handler.unary_unary)
        return grpc.unary_unary_rpc_method_handler(unary, **codecs)

    async def _enter(self, method: str, metadata: dict[str, str], request: Any) -> None:
        telemetry.request_id.set(metadata.get("x-request-id") or ids.new_id("req_"))
        rule = rule_of(method)
        if rule is None or rule.audience == pb.AUDIENCE_UNSPECIFIED:
            raise PermissionDenied(f"{method} has no authorization rule.")
        auth.enter()
        audited.enter()
        await self._gate.admit(rule, metadata)
        if rule.audience == pb.AUDIENCE_TENANT:
            caller = auth.current()
            if not caller.may(rule.permission):
                raise _lacking(caller, rule.permission)
            _require_fresh(caller, rule, request)

    def unary(
        self, method: str, metadata: dict[str, str], inner: Callable[..., Awaitable[Any]]
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        """The handler of one unary call, behind the boundary."""

        async def call(request: Any, context: Context) -> Any:
            started = time.perf_counter()
            try:
                await self._enter(method, metadata, request)
                response = await inner(request, context)
            except BaseException as error:
                failure = self._finish(method, request, error)
                if failure is None:
                    raise
                await self._keep(method)
                await context.abort(failure.code, failure.message, to_metadata(failure))
            self._finish(method, request, None, response)
            await self._keep(method)
            _seconds(method).observe(time.perf_counter() - started)
            return response

        return call

    def streaming(
        self, method: str, metadata: dict[str, str], inner: Callable[..., AsyncIterator[Any]]
    ) -> Callable[[Any, Context], AsyncGenerator[Any]]:
        """The handler of one call with a stream of answers, behind the boundary."""

        async def call(request: Any, context: Context) -> AsyncGenerator[Any]:
            with _streams(method).track_inprogress():
                try:
                    await self._enter(method, metadata, request)
                    async for item in inner(request, context):
                        yield item
                except BaseException as error:
                    failure = self._finish(method, request, error)
                    if failure is None:
                        raise
                    await self._keep(method)
                    await context.abort(failure.code, failure.message, to_metadata(failure))
                self._finish(method, request, None)
                await self._keep(method)

        return call

    def _duplex(
        self, method: str, metadata: dict[str, str], inner: Callable[..., Awaitable[None]] | None
    ) -> Callable[[Any, Context], Awaitable[None]]:
        """Wraps the coroutine of a servicer that reads and writes its context."""
        rule = rule_of(method)
        if inner is None or rule is None or rule.audience not in DUPLEX_AUDIENCES:
            raise NotImplementedError(
                f"{method}: calls of tenants may stream in one direction only"
            )

        async def call(requests: Any, context: Context) -> None:
            with _streams(method).track_inprogress():
                try:
                    await self._enter(method, metadata, None)
                    await inner(requests, context)
                except BaseException as error:
                    failure = self._finish(method, None, error)
                    if failure is None:
                        raise
                    await _abort(context, failure)
                self._finish(method, None, None)

        return call

    def _finish(
        self, method: str, request: Any, error: BaseException | None, answer: Any = None
    ) -> AppError | None:
        """Counts and audits the end; the error to answer, None to let it pass."""
        failure = translate(error, method) if error is not None else None
        outcome = "OK" if error is None else failure.code.name if failure else "CANCELLED"
        _handled(method, outcome).inc()
        rule = rule_of(method)
        if self._audit is not None and rule is not None and _is_audited(rule, outcome, failure):
            reason = failure.reason if failure else ""
            self._audit.record(method, request, outcome, reason, answer=answer)
        return failure

    async def _keep(self, method: str) -> None:
        """Has the row of a change on disk before its caller hears how it went."""
        rule = rule_of(method)
        if self._audit is not None and rule is not None and is_change(rule):
            await self._audit.kept()


async def _abort(context: Context, failure: AppError) -> None:
    """Ends a call that its caller may be leaving meanwhile, which is then no failure of ours."""
    try:
        await context.abort(failure.code, failure.message, to_metadata(failure))
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        raise asyncio.CancelledError from error


def translate(error: BaseException, where: str) -> AppError | None:
    """The AppError that a caller sees for any exception; None for a cancellation."""
    if isinstance(error, AppError):
        return error
    if isinstance(error, asyncio.CancelledError | GeneratorExit | grpc.aio.AbortError):
        return None
    if isinstance(error, grpc.aio.AioRpcError):
        translated = from_rpc(error)
        # A peer's verdict on our own credentials is our fault, not the caller's; one on
        # the API key that we asked about is the answer.
        if not isinstance(translated, Unauthenticated) or translated.reason == "invalid_api_key":
            return translated
    if isinstance(error, ObjectStoreError):
        log.warning("object_store_failed", rpc=where, error=str(error))
        return storage_error(error)
    if is_connection_loss(error):
        log.warning("database_unavailable", rpc=where, error=str(error))
        return Unavailable(
            "The database is not responding; try again.", reason="database_unavailable"
        )
    log.error("unexpected_error", rpc=where, exc_info=error)
    return Internal(f"Something went wrong (request {telemetry.request_id.get()}).")


def storage_error(error: ObjectStoreError) -> AppError:
    """The error that a caller sees for a failure of the object store."""
    if isinstance(error, ObjectNotFound):
        return NotFound("The content no longer exists.", reason="content_not_found")
    if isinstance(error, ObjectTooLarge):
        return InvalidArgument("The content exceeds the allowed size.", reason="file_too_large")
    if isinstance(error, ObjectMismatch):
        return InvalidArgument(str(error), reason="content_mismatch")
    if isinstance(error, StorageFull):
        return Unavailable("The storage is full; nothing was stored.", reason="storage_full")
    return Unavailable(
        "The object store is not responding; try again.", reason="storage_unavailable"
    )


def is_connection_loss(error: BaseException) -> bool:
    """True if a database error means a lost connection, not a fault of the statement."""
    if isinstance(error, OperationalError | InterfaceError):
        return True
    return isinstance(error, DBAPIError) and error.connection_invalidated
