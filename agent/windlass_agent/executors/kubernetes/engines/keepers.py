"""KeeperService: the words of keepers in pods, and the orders for them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import grpc

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.keeper.v1 import keeper_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.errors import REASON_KEY, AppError, to_metadata
from windlass.kubernetes.names import engine_name
from windlass.tunnel.authority import Authority
from windlass_agent.executors.kubernetes.engines.hosts import HostCall, Hosts, resident_uid
from windlass_agent.executors.kubernetes.observe.snapshot import PodSnapshot

# A call that is cut for a moment takes no engine out of the routes.
AWAY_SECONDS = 5.0
_REQUEST_BYTES = 4096
# Of a keeper's words.
_WORD, _SENTENCE, _MOST_ADAPTERS, _MOST_ROUTES = 128, 2000, 256, 32
_PHASES = frozenset(
    {clusters_pb2.PHASE_STARTING, clusters_pb2.PHASE_RUNNING, clusters_pb2.PHASE_FAILED}
)

log = telemetry.logger("keepers")
Context = grpc.aio.ServicerContext[Any, Any]


class PodLookup(Protocol):
    """Lookup of the pod that a caller's token belongs to."""

    async def find(self, token: str) -> PodSnapshot | None:
        """The pod of a token, None for a stranger's; raises AppError when it cannot tell."""


@dataclass(eq=False)
class _Call:
    """The call of one pod's keeper."""

    pod_uid: str
    state: pb.EngineState
    # Set when an order may differ from what was told, and at the end.
    news: asyncio.Event = field(default_factory=asyncio.Event)
    # Another call of the same pod has come.
    superseded: bool = False


class Keepers:
    """The last word of each pod's keeper. `changed` is called when one differs."""

    def __init__(self, changed: Callable[[], None]):
        self._changed = changed
        self._calls: dict[str, _Call] = {}

    def state(self, pod_uid: str) -> pb.EngineState | None:
        """The last word of a pod's keeper; None if it is not there."""
        call = self._calls.get(pod_uid)
        return call.state if call is not None else None

    def order(self) -> None:
        """Has every keeper's order looked at anew."""
        for call in self._calls.values():
            call.news.set()

    def begin(self, pod_uid: str, state: pb.EngineState) -> _Call:
        """Notes a call, which supersedes an older one of the pod."""
        before = self._calls.get(pod_uid)
        call = self._calls[pod_uid] = _Call(pod_uid, state)
        if before is not None:
            before.superseded = True
            before.news.set()
        self._changed()
        return call

    def say(self, call: _Call, state: pb.EngineState) -> None:
        """Notes what a keeper says."""
        call.state = state
        self._changed()

    def end(self, call: _Call) -> None:
        """Forgets a call soon, unless its keeper comes back."""
        asyncio.get_running_loop().call_later(AWAY_SECONDS, self._forget, call)

    def drop(self, uid: str) -> None:
        """Forgets at once what is no more: another of its name says how it is itself."""
        call = self._calls.pop(uid, None)
        if call is not None:
            call.superseded = True
            call.news.set()

    def _forget(self, call: _Call) -> None:
        if self._calls.get(call.pod_uid) is call:
            del self._calls[call.pod_uid]
            self._changed()


class HostedPods(Protocol):
    """The pods that host residents, and those whom they may speak for."""

    def is_host(self, pod: PodSnapshot) -> bool:
        """Returns True of a pod that is to host residents."""

    def sits(self, pod: PodSnapshot, workload_id: str) -> bool:
        """Returns True if a workload is a resident of a pod, which may speak for it then."""


class KeeperServicer(rpc.KeeperServiceServicer):
    """Certifies doors and passes orders.

    `ordered` returns the engine that a pod should be, `broken` whether another pod of it is gone,
    `awaits_weights` whether another still fetches. Without `hosted`, no pod hosts others.
    """

    def __init__(
        self,
        tokens: PodLookup,
        keepers: Keepers,
        authority: Authority,
        ordered: Callable[[str], clusters_pb2.EngineWorkload | None],
        broken: Callable[[str], bool] = lambda _: False,
        awaits_weights: Callable[[str], bool] = lambda _: False,
        hosted: HostedPods | None = None,
        hosts: Hosts | None = None,
    ):
        self._hosted = hosted
        self._hosts = hosts
        self._tokens = tokens
        self._keepers = keepers
        self._authority = authority
        self._ordered = ordered
        self._broken = broken
        self._awaits_weights = awaits_weights

    async def Keep(
        self, request_iterator: AsyncIterator[pb.KeeperReport], context: Context
    ) -> AsyncIterator[pb.EngineOrder]:
        """Tells a keeper its order for as long as it calls."""
        pod = await self._admit(context)
        first = await anext(aiter(request_iterator))
        workload_id, uid = await self._speaker(pod, first.resident_id, context)
        try:
            if len(first.certificate_request) > _REQUEST_BYTES:
                raise ValueError("the certificate request is too long")
            # Of an engine on several nodes, the first pod alone has a door.
            request = first.certificate_request if pod.rank == 0 else b""
            certificate = self._certified(request, workload_id)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"No certificate: {error}.")
        call = self._keepers.begin(uid, _bounded(first.state))
        hearing = asyncio.create_task(self._hear(call, request_iterator))
        try:
            if certificate:
                yield pb.EngineOrder(certificate=certificate)
            async for order in self._orders(call, workload_id, hearing):
                yield order
        finally:
            hearing.cancel()
            self._keepers.end(call)

    async def Host(
        self, request_iterator: AsyncIterator[pb.HostReport], context: Context
    ) -> AsyncIterator[pb.HostOrder]:
        """Tells a pod which residents should run in it, for as long as it calls."""
        pod = await self._admit(context)
        if self._hosted is None or self._hosts is None or not self._hosted.is_host(pod):
            await self._deny(context)
        first = await anext(aiter(request_iterator))
        call = self._hosts.begin(pod.uid, first)
        hearing = asyncio.create_task(self._hear_host(self._hosts, call, request_iterator))
        told = None
        try:
            while not (call.superseded or hearing.done()):
                call.news.clear()
                order = self._hosts.order(call)
                if order is not None and order != told:
                    told = order
                    yield self._hosts.sent(call, order)
                await call.news.wait()
        finally:
            hearing.cancel()

    async def _hear_host(
        self, hosts: Hosts, call: HostCall, reports: AsyncIterator[pb.HostReport]
    ) -> None:
        try:
            async for report in reports:
                hosts.say(call, report)
        finally:
            call.news.set()

    async def _speaker(
        self, pod: PodSnapshot, resident_id: str, context: Context
    ) -> tuple[str, str]:
        """The workload that a keeper is of, and by which name its words are kept."""
        is_host = self._hosted is not None and self._hosted.is_host(pod)
        if not (is_host or resident_id):
            return pod.key.workload, pod.uid
        if self._hosted is None or not self._hosted.sits(pod, resident_id):
            await self._deny(context)
        return resident_id, resident_uid(pod.uid, resident_id)

    async def _deny(self, context: Context) -> NoReturn:
        said = "This pod is not to speak for that."
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, said)

    def _certified(self, request: bytes, workload_id: str) -> bytes:
        """The certificate of a pod's door; empty for a pod that asks for none."""
        if not request:
            return b""
        return self._authority.certify(request, engine_name(workload_id))

    async def _orders(
        self, call: _Call, workload_id: str, hearing: "asyncio.Task[None]"
    ) -> AsyncIterator[pb.EngineOrder]:
        told = None
        while not (call.superseded or hearing.done()):
            call.news.clear()
            engine, broken = self._ordered(workload_id), self._broken(workload_id)
            awaits = self._awaits_weights(workload_id)
            order = pb.EngineOrder(engine=engine, broken=broken, awaits_weights=awaits)
            if (engine is not None or broken) and order != told:
                told = order
                yield order
            await call.news.wait()

    async def _hear(self, call: _Call, reports: AsyncIterator[pb.KeeperReport]) -> None:
        try:
            async for report in reports:
                if not call.superseded:
                    self._keepers.say(call, _bounded(report.state))
        finally:
            call.news.set()

    async def _admit(self, context: Context) -> PodSnapshot:
        metadata = dict(context.invocation_metadata() or ())
        scheme, _, token = str(metadata.get("authorization", "")).partition(" ")
        try:
            found = await self._tokens.find(token) if scheme.lower() == "bearer" else None
        except AppError as error:
            await context.abort(error.code, error.message, to_metadata(error))
        if found is None:
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED,
                "This token does not belong to an engine running here.",
                ((REASON_KEY, "invalid_runner_token"),),
            )
        return found


def _bounded(said: pb.EngineState) -> pb.EngineState:
    """A keeper's word, cut to what an engine may have to say: it may be a tenant's by now."""
    if said.phase not in _PHASES:
        said.phase = clusters_pb2.PHASE_STARTING
    said.reason, said.message = said.reason[:_WORD], said.message[:_SENTENCE]
    said.weights_error = said.weights_error[:_SENTENCE]
    del said.adapters[_MOST_ADAPTERS:]
    for adapter in said.adapters:
        adapter.id, adapter.version_id = adapter.id[:_SENTENCE], adapter.version_id[:_WORD]
        adapter.error = adapter.error[:_SENTENCE]
    routes = [route[:_WORD] for route in said.capabilities.routes[:_MOST_ROUTES]]
    del said.capabilities.routes[:]
    said.capabilities.routes.extend(routes)
    return said
