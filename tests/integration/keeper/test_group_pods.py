"""Keepers of an engine on several nodes: that of the first pod, and those of the others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.integration.keeper.test_engine_start import Started
from tests.support.agents.kept_pod import POD, TOKEN
from tests.support.processes.windlass import free_port
from tests.support.waiting import PATIENCE, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass.tunnel.authority import Authority
from windlass_agent.executors.kubernetes.engines.keepers import Keepers, KeeperServicer
from windlass_agent.executors.kubernetes.observe.snapshot import PodSnapshot
from windlass_agent.keeper.health import DRAINED
from windlass_agent.keeper.leader import Leader


async def test_what_is_open_is_cut_and_it_serves_no_more_while_another_pod_has_ended(
    tmp_path: Path,
) -> None:
    made = Started(tmp_path)
    made.kind.serves = True
    cut = asyncio.Event()
    made.keeper.when_silent(cut.set)
    running = asyncio.create_task(made.keeper.run())
    try:
        async with await asyncio.start_server(lambda _, writer: writer.close(), port=made.port):
            await until(lambda: made.keeper.serves)
            made.keeper.take_others(broken=True, awaits_weights=False)
            await until(cut.is_set)
            # Though it listens, and says that it is ready.
            asked = made.kind.asked
            await until(lambda: made.keeper.unanswered and not made.keeper.serves)
            assert made.kind.asked == asked
            # Its agent was mistaken.
            made.keeper.take_others(broken=False, awaits_weights=False)
            await until(lambda: made.keeper.serves)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@contextlib.asynccontextmanager
async def leader_pod(open_requests: asyncio.Event) -> AsyncIterator[int]:
    """The port where a first pod's keeper says that it has drained, once the event is set."""
    asked = asyncio.Event()

    async def drained(_: web.Request) -> web.Response:
        asked.set()
        await open_requests.wait()
        return web.Response()

    app, port = web.Application(), free_port()
    app.router.add_get(DRAINED, drained)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield port
    finally:
        await runner.cleanup()


async def test_a_pod_ends_after_the_first_has_drained_though_its_name_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = asyncio.Event()
    async with leader_pod(done) as port:
        leader = Leader("localhost", port)
        following = asyncio.create_task(leader.follow())
        await until(lambda: leader._address)
        # A set that is deleted takes the name with it at once.
        monkeypatch.setattr(leader, "_host", "gone.invalid")
        waiting = asyncio.create_task(leader.drained())
        done_before, _ = await asyncio.wait({waiting}, timeout=0.2)
        assert not done_before
        done.set()
        await asyncio.wait_for(waiting, PATIENCE)
        following.cancel()


async def test_nobody_waits_for_a_first_pod_that_is_not_there() -> None:
    await asyncio.wait_for(Leader("localhost", free_port()).drained(), 10)


class Member:
    """Stands for the cluster's review of tokens: whoever asks is the second pod."""

    async def find(self, token: str) -> PodSnapshot | None:
        return replace(POD, rank=1) if token == TOKEN else None


class Call:
    """The context of a call with that token."""

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {TOKEN}")]


async def test_a_pod_without_a_door_gets_orders_and_no_certificate() -> None:
    keepers, ended = Keepers(lambda: None), set[str]()
    servicer = KeeperServicer(
        Member(),
        keepers,
        Authority.make(),
        lambda _: pb.EngineWorkload(model="m", nodes=2),
        lambda workload: workload in ended,
        lambda workload: workload in ended,
    )
    stop = asyncio.Event()

    async def reports() -> AsyncIterator[keeper_pb2.KeeperReport]:
        yield keeper_pb2.KeeperReport(certificate_request=b"any key")
        await stop.wait()

    context: Any = Call()
    orders = servicer.Keep(reports(), context)
    order = await anext(orders)
    assert (order.certificate, order.engine.nodes, order.broken) == (b"", 2, False)
    for broken, change in ((True, ended.add), (False, ended.remove)):
        change(POD.key.workload)
        keepers.order()
        order = await anext(orders)
        assert (order.broken, order.awaits_weights) == (broken, broken)
    stop.set()
    assert [order async for order in orders] == []
