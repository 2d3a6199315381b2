"""Starts that do not come to an end: the keeper says so after a bound, and does not hurry."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.processes.windlass import free_port
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.port import EngineCapabilities, EngineError
from windlass_agent.keeper import engine_keeper
from windlass_agent.keeper.engine_keeper import EngineKeeper


class Kind:
    """An engine that says it is ready, and cannot say what it serves until `serves`."""

    def __init__(self) -> None:
        self.asked = 0
        self.serves = False
        self.warmed = 0
        self.fails = False

    def control(self, _: str) -> Any:
        return self

    async def ready(self) -> bool:
        return True

    async def warm(self, model: str, task: str) -> None:
        self.warmed += 1
        if self.fails:
            raise EngineError("no kernel image", status=500)

    async def served(self) -> EngineCapabilities:
        self.asked += 1
        if not self.serves:
            raise EngineError("not yet")
        return EngineCapabilities(vision=True)

    async def load(self) -> EngineLoad:
        raise EngineError("it tells none")

    async def close(self) -> None:
        return


class Started:
    """A keeper whose weights are there."""

    def __init__(self, folder: Path):
        self.kind = cast("Any", Kind())
        self.port = free_port()
        there = folder / "models" / "mv-1"
        there.mkdir(parents=True)
        config = '{"vision_config": {"patch_size": 14}}'
        (there / "config.json").write_text(config)
        size = len(config)
        file = models_pb2.FileUrl(path="config.json", url="http://x", bytes=size, sha256=bytes(32))
        self.keeper = EngineKeeper(
            self.kind, endpoint=f"http://127.0.0.1:{self.port}", weights=folder, adapter_bytes=1
        )
        self.keeper.order(pb.EngineWorkload(model_version_id="mv-1", model_files=[file]))

    def failed(self) -> bool:
        state = self.keeper.state()
        return (state.phase, state.reason) == (pb.PHASE_FAILED, "StartFailed")


@pytest.fixture
async def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Started]:
    monkeypatch.setattr(engine_keeper, "START_SECONDS", 0.6)
    made = Started(tmp_path)
    running = asyncio.create_task(made.keeper.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_engine_that_never_listens_has_failed(started: Started) -> None:
    await until(started.keeper.has_weights.is_set)
    await until(started.failed)
    assert started.keeper.state().message.startswith("The engine did not answer within ")
    assert not started.keeper.serves


async def test_no_time_of_a_start_passes_while_another_pod_fetches(started: Started) -> None:
    keeper, loop = started.keeper, asyncio.get_running_loop()
    keeper.take_others(broken=False, awaits_weights=True)
    await until(keeper.has_weights.is_set)
    over = loop.create_future()
    loop.call_later(2 * engine_keeper.START_SECONDS, over.set_result, None)
    await over
    assert keeper.state().reason == "Loading"
    keeper.take_others(broken=False, awaits_weights=False)
    assert not started.failed()
    await until(started.failed)


async def test_a_pod_without_a_door_says_that_its_weights_are_there(tmp_path: Path) -> None:
    keeper = Started(tmp_path).keeper
    attending = asyncio.create_task(keeper.attend())
    await until(lambda: keeper.state().reason == "Loading")
    attending.cancel()
    await asyncio.gather(attending, return_exceptions=True)


async def test_one_that_cannot_say_what_it_serves_is_asked_at_leisure(started: Started) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), port=started.port)
    async with server:
        await until(started.failed)
        assert 1 <= started.kind.asked <= 3
        # Late is better than never, if nobody has taken it away by then.
        started.kind.serves = True
        await until(lambda: started.keeper.serves)
        # By the files that it has brought.
        assert started.keeper.state().capabilities.vision


async def test_one_that_fails_at_its_first_request_gets_no_others(started: Started) -> None:
    started.kind.fails = started.kind.serves = True
    server = await asyncio.start_server(lambda _, writer: writer.close(), port=started.port)
    async with server:
        await until(lambda: started.keeper.state().reason == "NotAnswering")
        state = started.keeper.state()
        assert state.phase == pb.PHASE_STARTING
        assert state.message == "It is ready, but fails: no kernel image"
        await until(started.failed)
        assert (started.kind.warmed > 0, started.kind.asked) == (True, 0)
        assert not started.keeper.serves
        started.kind.fails = False
        await until(lambda: started.keeper.serves)
