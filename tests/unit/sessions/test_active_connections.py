"""Connections close when their access ends, also between two checks.

The services that are asked are made up, since a test must say when they answer, and when not.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

import grpc
import pytest
from tests.support.environments.client_certificates import made
from tests.support.waiting import PATIENCE, stays, until

from windlass import key_cache
from windlass.api.auth.v1 import auth_pb2
from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.rbac.v1 import rbac_pb2
from windlass.api.users.v1 import users_pb2
from windlass.core.certificates import PresentedCertificate
from windlass.core.errors import AppError, PermissionDenied, Unauthenticated, Unavailable
from windlass.sessions.access import active_connections as live_module
from windlass.sessions.access.active_connections import ActiveConnections, Open
from windlass.sessions.access.assignments import Assignments
from windlass.sessions.access.callers import Callers, Identity

ANN = Identity("org", "proj", "key-ann")
BOB = Identity("org", "proj", "key-bob")


def failure(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    empty = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, empty, empty, "no")


@dataclass
class World:
    """users, rbac and clusters."""

    permissions: dict[str, set[str]] = field(default_factory=dict)
    expires_at: int = 0
    networks: list[str] = field(default_factory=list)
    organization_networks: list[str] = field(default_factory=list)
    demands: dict[str, list[auth_pb2.CertificateDemand]] = field(default_factory=dict)
    namespaces: dict[str, str] = field(default_factory=lambda: {"proj": "ns"})
    away: bool = False
    asked: int = 0
    # What the next look-up waits for, after it has seen how things stand.
    gate: asyncio.Event | None = None
    beats: "asyncio.Queue[users_pb2.KeyBeat]" = field(default_factory=asyncio.Queue)

    async def Authenticate(self, request: Any, timeout: float) -> rbac_pb2.AuthenticateResponse:
        self.asked += 1
        if self.away:
            raise failure(grpc.StatusCode.UNAVAILABLE)
        granted = self.permissions.get(request.key_id)
        gate, self.gate = self.gate, None
        if gate is not None:
            await gate.wait()
        if granted is None:
            raise failure(grpc.StatusCode.UNAUTHENTICATED)
        principal = auth_pb2.Principal(
            organization_id="org", project_id="proj", permissions=sorted(granted)
        )
        return rbac_pb2.AuthenticateResponse(
            principal=principal,
            expires_at=self.expires_at,
            networks=self.networks,
            certificate_demands=self.demands.get(request.key_id, ()),
            organization_networks=self.organization_networks,
        )

    async def ListCapacity(self, request: Any, timeout: float) -> AsyncIterator[Any]:
        if self.away:
            raise failure(grpc.StatusCode.UNAVAILABLE)
        yield clusters_pb2.ListCapacityResponse(
            assignments=[
                clusters_pb2.Assignment(cluster_id="c", project_id=project, namespace=namespace)
                for project, namespace in self.namespaces.items()
            ]
        )

    def WatchKeys(self, request: Any) -> "Beats":
        return Beats(self)

    def change(self, key: str, permissions: set[str] | None) -> None:
        self.permissions.pop(key, None)
        if permissions is not None:
            self.permissions[key] = permissions
        self.beats.put_nowait(users_pb2.KeyBeat(changed_key_ids=[key]))


@dataclass
class Beats:
    """One stream of beats, until users is away."""

    world: World

    async def __aiter__(self) -> AsyncIterator[users_pb2.KeyBeat]:
        if self.world.away:
            raise failure(grpc.StatusCode.UNAVAILABLE)
        yield users_pb2.KeyBeat(reset=True)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    yield await self.world.beats.get()
                    continue
            if self.world.away:
                raise failure(grpc.StatusCode.UNAVAILABLE)
            yield users_pb2.KeyBeat()

    def cancel(self) -> None:
        """Nothing is left to do: the queue has no other end."""


@pytest.fixture
def world() -> World:
    return World({"key-ann": {"sessions.read"}, "key-bob": {"sessions.read"}})


@pytest.fixture
async def live(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ActiveConnections]:
    monkeypatch.setattr(live_module, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(key_cache, "RECONNECT_SECONDS", 0.01)
    anything: Any = world
    made = ActiveConnections(Callers(anything, anything), Assignments(anything))
    running = asyncio.create_task(made.run())
    await until(lambda: made._callers.trusted)
    yield made
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


class Held:
    """Something open, and what ended it."""

    def __init__(
        self,
        live: ActiveConnections,
        who: Identity = ANN,
        permission: str = "sessions.read",
        address: str = "10.0.0.7",
        certificate: PresentedCertificate | None = None,
    ):
        self._live = live
        self.ended: asyncio.Future[AppError] = asyncio.get_running_loop().create_future()
        self.open = Open(who, "c", "ns", permission, self._abort, ip_address(address), certificate)
        self.started = asyncio.Event()
        self.task = asyncio.create_task(self._hold())

    def _abort(self, error: AppError) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    async def _hold(self) -> None:
        async with self._live.opened(self.open):
            self.started.set()
            await asyncio.shield(self.ended)


async def held(live: ActiveConnections, who: Identity = ANN, **options: Any) -> Held:
    made = Held(live, who, **options)
    await asyncio.wait_for(made.started.wait(), PATIENCE)
    return made


async def ends(one: Held) -> AppError:
    return await asyncio.wait_for(asyncio.shield(one.ended), PATIENCE)


async def test_a_revoked_key_ends_what_is_its_own(live: ActiveConnections, world: World) -> None:
    ann, bob = await held(live, ANN), await held(live, BOB)
    world.change("key-ann", None)
    assert isinstance(await ends(ann), Unauthenticated)
    assert not bob.ended.done()
    world.change("key-bob", {"clusters.read"})
    assert isinstance(await ends(bob), PermissionDenied)
    await asyncio.gather(ann.task, bob.task)
    assert not live._open
    assert not live._projects


async def test_a_permission_that_goes_ends_what_needs_it(
    live: ActiveConnections, world: World
) -> None:
    world.permissions["key-ann"] = {"sessions.read", "sessions.write"}
    reading = await held(live, permission="sessions.read")
    writing = await held(live, permission="sessions.write")
    world.change("key-ann", {"sessions.read"})
    assert isinstance(await ends(writing), PermissionDenied)
    assert not reading.ended.done()


async def test_an_assignment_that_goes_ends_its_streams(
    live: ActiveConnections, world: World
) -> None:
    one = await held(live)
    world.namespaces["proj"] = "elsewhere"
    assert isinstance(await ends(one), PermissionDenied)


async def test_a_key_that_reaches_its_end_is_noticed_without_a_beat(
    live: ActiveConnections, world: World
) -> None:
    world.expires_at = int(time.time()) + 2
    one = await held(live)
    assert isinstance(await ends(one), Unauthenticated)


@pytest.mark.parametrize("whose", ["networks", "organization_networks"])
async def test_a_key_that_is_taken_from_elsewhere_alone_ends_what_is_open(
    live: ActiveConnections, world: World, whose: str
) -> None:
    near, far = await held(live), await held(live, address="192.0.2.7")
    setattr(world, whose, ["10.0.0.0/8"])
    world.change("key-ann", {"sessions.read"})
    assert isinstance(await ends(far), PermissionDenied)
    assert not near.ended.done()
    with pytest.raises(PermissionDenied):
        await held_task(Held(live, address="2001:db8::1"))


async def held_task(one: Held) -> None:
    await asyncio.wait_for(one.task, PATIENCE)


async def test_a_change_during_a_lookup_is_not_forgotten(
    live: ActiveConnections, world: World
) -> None:
    """The answer was true when it was given, and no longer when it came: nothing opens."""
    world.gate = gate = asyncio.Event()
    opening = Held(live)
    await until(lambda: world.gate is None)
    world.change("key-ann", None)
    await until(world.beats.empty)
    gate.set()
    with pytest.raises(Unauthenticated):
        await opening.task
    assert not opening.started.is_set()


async def is_unknown(live: ActiveConnections, who: Identity) -> bool:
    try:
        await live._callers.find(who)
    except Unauthenticated:
        return True
    return False


async def test_an_answer_is_kept_until_something_changes(
    live: ActiveConnections, world: World
) -> None:
    for _ in range(3):
        await live._callers.find(ANN)
    assert world.asked == 1
    world.change("key-bob", {"sessions.read"})
    world.change("key-ann", None)
    await until(lambda: is_unknown(live, ANN))


async def test_doubt_refuses_what_is_new_at_once_and_ends_what_is_open_later(
    live: ActiveConnections, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "DOUBT_SECONDS", 3600.0)
    one = await held(live)
    world.away = True
    await until(lambda: not live._callers.trusted)
    with pytest.raises(Unavailable):
        await live._callers.find(ANN)
    assert not one.ended.done()
    monkeypatch.setattr(live_module, "DOUBT_SECONDS", 0.0)
    assert isinstance(await ends(one), Unavailable)


async def test_who_comes_back_in_time_ends_nothing(live: ActiveConnections, world: World) -> None:
    one = await held(live)
    world.away = True
    await until(lambda: not live._callers.trusted)
    world.away = False
    await until(lambda: live._callers.trusted)
    await stays(lambda: not one.ended.done(), 0.1)
    # And what was missed meanwhile is made up for.
    world.permissions.pop("key-ann")
    world.beats.put_nowait(users_pb2.KeyBeat(reset=True))
    assert isinstance(await ends(one), Unauthenticated)


async def test_a_demand_ends_what_has_no_certificate(live: ActiveConnections, world: World) -> None:
    authority = made("authority", ca=True)
    ann, bob = await held(live, ANN), await held(live, BOB)
    for one in (ann, bob):
        who = one.open.identity.key_id
        world.demands[who] = [auth_pb2.CertificateDemand(certificates=[authority.der])]
        world.change(who, {"sessions.read"})
        assert isinstance(await ends(one), PermissionDenied)
    leaf = PresentedCertificate.of(made("client", authority).der)
    other = await held(live, ANN, certificate=leaf)
    world.change("key-ann", {"sessions.read"})
    await stays(lambda: not other.ended.done(), 0.5)
    world.change("key-ann", None)
    await ends(other)
