"""Rate limits over several gateways: together they let through what the project has, no more."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import until

from windlass.api.usage.v1 import allowances_pb2 as pb
from windlass.core.config import LimitsSection
from windlass.core.db import Database
from windlass.gateway.errors import HttpError
from windlass.gateway.limits import Limiter, limiter
from windlass.gateway.limits.limiter import GRANT_SECONDS
from windlass.usage.allowance_service import AllowancesInternalServicer
from windlass.usage.allowances import AllowanceStore, BucketDraw, fill, forget_idle


class Service:
    """The servicer on a real Postgres, called without a wire between; it can be away."""

    def __init__(self, database: Database):
        self._servicer = AllowancesInternalServicer(AllowanceStore(database))
        self.is_away = False
        self.calls = 0

    async def Draw(self, request: pb.DrawRequest, *, timeout: float) -> pb.DrawResponse:
        self.calls += 1
        if self.is_away:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing)
        return await self._servicer.Draw(request, None)


@pytest.fixture
async def service(database_url: str) -> AsyncIterator[Service]:
    database = Database(database_url, pool_size=8)
    yield Service(database)
    await database.close()


def gateways(service: Service, number: int = 2, **limits: int) -> list[Limiter]:
    stub: Any = service
    return [Limiter(LimitsSection(**limits), stub, holder=f"gateway_{n}") for n in range(number)]


async def enter(gateway: Limiter, tokens: int = 0, project: str = "proj_a") -> bool:
    limits = gateway.of(project)
    try:
        await gateway.enter(limits, limits.reservation(tokens))
    except HttpError as error:
        return error.status != 429
    return True


async def test_requests_of_two_gateways_are_one_limit(service: Service) -> None:
    both = gateways(service, requests_per_minute=40)
    began = time.monotonic()
    passed = await asyncio.gather(*(enter(both[n % 2]) for n in range(100)))
    refilled = (time.monotonic() - began) * 40 / 60
    assert 40 <= sum(passed) <= 41 + refilled
    assert await enter(both[0], project="proj_b"), "another project has its own"


async def test_most_requests_are_let_through_without_a_call(service: Service) -> None:
    (one,) = gateways(service, 1, requests_per_minute=2000)
    assert all([await enter(one) for _ in range(1000)])
    assert service.calls <= 11


async def test_who_goes_on_asking_never_waits_for_a_draw(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a request would wait for has been drawn ahead by what settled the one before."""
    (one,) = gateways(
        service, 1, requests_per_minute=400, tokens_per_minute=40_000, concurrent_requests=100
    )
    began, later = time.monotonic(), 0.0
    limits = one.of("proj_a")
    monkeypatch.setattr(time, "monotonic", lambda: began + later)
    assert await enter(one, tokens=100)
    for pause in (0.1, 4.0, 6.0, 8.9, 8.9, *[0.1] * 30):
        one.leave(limits, 100, 100)
        await one.settle()
        drawn, later = service.calls, later + pause
        assert await enter(one, tokens=100)
        assert service.calls == drawn


async def test_what_is_drawn_ahead_is_let_go(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = gateways(service, concurrent_requests=20)
    assert await enter(one)
    one.leave(one.of("proj_a"), 0, 0)
    await one.settle()
    assert one.of("proj_a").slots == 1
    assert [await enter(two) for _ in range(20)] == [True] * 19 + [False]
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began + GRANT_SECONDS + 1)
    await one.renew()
    assert one.of("proj_a").slots == 0
    assert await enter(two)
    drawn = service.calls
    await one.renew()
    assert service.calls == drawn


async def test_slots_are_not_taken_while_they_are_given_back(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = gateways(service, concurrent_requests=10)
    assert all([await enter(one) for _ in range(10)])
    for _ in range(10):
        one.leave(one.of("proj_a"), 0, 0)
    draw, asked, gate = service.Draw, asyncio.Event(), asyncio.Event()

    async def slow(request: pb.DrawRequest, *, timeout: float) -> pb.DrawResponse:
        answer = await draw(request, timeout=timeout)
        asked.set()
        await gate.wait()
        return answer

    monkeypatch.setattr(service, "Draw", slow)
    settling = asyncio.create_task(one.settle())
    await asked.wait()
    monkeypatch.setattr(service, "Draw", draw)
    entering = [asyncio.create_task(enter(one)) for _ in range(10)]
    assert sum([await enter(two) for _ in range(10)]) == 10
    gate.set()
    await settling
    assert sum(await asyncio.gather(*entering)) == 0


async def test_slots_are_renewed_while_others_come_and_go(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RENEW_SECONDS", "SETTLE_SECONDS"):
        monkeypatch.setattr(limiter, name, 0.02)
    (one,) = gateways(service, 1, concurrent_requests=100)
    assert await enter(one, project="proj_b")
    long = one.of("proj_b")
    began = long.renewed_at

    async def comes_and_goes() -> bool:
        assert await enter(one)
        one.leave(one.of("proj_a"), 0, 0)
        return long.renewed_at > began + 0.1

    with settling(one):
        await until(comes_and_goes)


async def test_small_limits_are_not_drawn_ahead(service: Service) -> None:
    one, two = gateways(service, requests_per_minute=10, concurrent_requests=10)
    assert await enter(one)
    one.leave(one.of("proj_a"), 0, 0)
    await one.settle()
    assert [await enter(two) for _ in range(10)] == [True] * 9 + [False]


async def test_what_was_reserved_and_not_used_is_given_back(service: Service) -> None:
    one, two = gateways(service, tokens_per_minute=1000)
    assert await enter(one, tokens=900)
    assert not await enter(two, tokens=900)
    with settling(one):
        one.leave(one.of("proj_a"), 900, 10)
        await until(lambda: enter(two, tokens=900))


async def test_grants_that_end_together_are_drawn_together(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = gateways(service, 1, requests_per_minute=10_000, tokens_per_minute=10_000_000)
    began = time.monotonic()
    for later in (0.0, GRANT_SECONDS + 0.1, 3 * GRANT_SECONDS):
        monkeypatch.setattr(time, "monotonic", lambda later=later: began + later)
        assert await enter(one, tokens=100)


async def test_a_grant_that_ends_while_another_is_drawn_still_counts(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = gateways(service, 1, requests_per_minute=20, tokens_per_minute=10_000_000)
    began, draw = time.monotonic(), service.Draw
    assert await enter(one, tokens=100)
    moment = began + GRANT_SECONDS - 0.001

    async def slow(request: pb.DrawRequest, *, timeout: float) -> pb.DrawResponse:
        nonlocal moment
        moment += 1
        return await draw(request, timeout=timeout)

    monkeypatch.setattr(service, "Draw", slow)
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    assert await enter(one, tokens=100)
    assert await enter(one, tokens=100)


async def test_what_was_used_beyond_the_reservation_is_owed(service: Service) -> None:
    one, two = gateways(service, tokens_per_minute=1000)
    assert await enter(one, tokens=10)
    with settling(one):
        one.leave(one.of("proj_a"), 10, 2000)
        await until(lambda: refused(two, tokens=10))


async def test_requests_at_once_are_counted_over_gateways(service: Service) -> None:
    one, two = gateways(service, concurrent_requests=3)
    assert [await enter(gateway) for gateway in (one, two, one, two)] == [True, True, True, False]
    with settling(one):
        one.leave(one.of("proj_a"), 0, 0)
        await until(lambda: enter(two))
    assert not await enter(one)


async def test_a_dead_gateways_slots_are_free_in_the_end(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = gateways(service, concurrent_requests=1)
    monkeypatch.setattr("windlass.usage.allowances.SLOT_SECONDS", 0)
    assert await enter(one)
    assert await enter(two)


async def test_without_the_service_each_gateway_holds_the_limit_alone(service: Service) -> None:
    service.is_away = True
    one, two = gateways(service, requests_per_minute=5, concurrent_requests=100)
    assert sum([await enter(one) for _ in range(10)]) == 5
    assert sum([await enter(two) for _ in range(10)]) == 5


async def test_what_is_full_or_gone_is_forgotten(service: Service, database_url: str) -> None:
    (one,) = gateways(service, 1, requests_per_minute=5, concurrent_requests=5)
    assert await enter(one)
    database = Database(database_url, pool_size=2)
    try:
        await forget_idle(database, idle_seconds=-60)
    finally:
        await database.close()
    assert [await enter(gateways(service, 1, requests_per_minute=5)[0]) for _ in range(5)][-1]


@given(
    level=st.floats(-1e6, 1e3), seconds=st.floats(0, 1e4), needed=st.floats(0, 2e3),
    more=st.floats(0, 1e3), settled=st.floats(-1e3, 1e3),
)  # fmt: skip
def test_a_bucket_never_gives_what_it_has_not(
    level: float, seconds: float, needed: float, more: float, settled: float
) -> None:
    draw = BucketDraw(1000, needed, needed + more, settled)
    after, granted = fill(level, seconds=seconds, draw=draw)
    assert after <= 1000
    assert granted == 0 or needed <= granted <= needed + more
    assert granted == 0 or after >= -1e-6


@contextmanager
def settling(gateway: Limiter) -> Iterator[None]:
    """The gateway's background work, until the end of the block."""
    task = asyncio.create_task(gateway.run())
    try:
        yield
    finally:
        task.cancel()


async def refused(gateway: Limiter, tokens: int) -> bool:
    return not await enter(gateway, tokens=tokens)
