"""The sleep of an engine on a machine, with an engine that only says what it was asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.engines.port import EngineControl, EngineError
from windlass_agent.executors.process.allocator import ENGINE, Allocator
from windlass_agent.executors.process.allotment import ResourceRequest
from windlass_agent.executors.process.engines import draining, sleeping
from windlass_agent.executors.process.engines.engine_failure import EngineFailure
from windlass_agent.executors.process.engines.engine_process import EngineProcess
from windlass_agent.executors.process.engines.sleeping import EngineSleep
from windlass_agent.machine import Device, Machine

ALONE = ResourceRequest(gpus=1, alone=True)
FALLING, SLEEPS = (pb.PHASE_SLEEPING, "FallingAsleep"), (pb.PHASE_SLEEPING, "")
WAITS, WAKES = (pb.PHASE_PENDING, "WaitingForGpu"), (pb.PHASE_STARTING, "Waking")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(draining, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(sleeping, "LOOK_SECONDS", 0.001)


class Sleeper:
    """An engine behind its control, with a GPU of its own; `calls` are those that change it."""

    def __init__(self, *, asleep: bool = False):
        self.is_asleep, self.is_wanted, self.has_ended = asleep, True, False
        self.open = self.looks = 0
        self.refuses = ""
        self.calls: list[str] = []
        self.phases: list[tuple[Any, str]] = []
        self.allocator = Allocator(Machine(devices=(Device(id="GPU-0"),)))
        self.places = self.allocator.places(ENGINE, 4)

    async def asleep(self) -> bool:
        return self.is_asleep

    async def open_requests(self) -> int:
        self.looks += 1
        return self.open

    async def sleep(self) -> None:
        await self._do("sleep", asleep=True)

    async def wake(self) -> None:
        await self._do("wake", asleep=False)

    async def _do(self, call: str, *, asleep: bool) -> None:
        self.calls.append(call)
        if self.refuses == call:
            raise EngineError("it will not")
        self.is_asleep = asleep

    async def recheck(self) -> None:
        self.calls.append("recheck")

    def ended(self) -> bool:
        return self.has_ended

    def become(self, phase: "pb.Phase.ValueType", reason: str) -> None:
        self.phases.append((phase, reason))

    async def reaches(self, phase: tuple[Any, str]) -> None:
        await until(lambda: self.phases[-1:] == [phase], 10)


@asynccontextmanager
async def sleeper(**options: bool) -> AsyncIterator[tuple[Sleeper, "asyncio.Task[bool]"]]:
    made = Sleeper(**options)
    await made.places.acquire("eng", ALONE)
    run = asyncio.create_task(
        EngineSleep(
            workload_id="eng",
            control=cast("EngineControl", made),
            process=cast("EngineProcess", made),
            places=made.places,
            wanted=lambda: made.is_wanted,
            become=made.become,
            recheck=made.recheck,
        ).through()
    )
    yield made, run
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


async def test_it_sleeps_until_it_is_not_wanted_and_is_checked_before_it_answers() -> None:
    async with sleeper() as (engine, run):
        await engine.reaches(SLEEPS)
        assert engine.allocator.held(ENGINE).gpus == 0
        engine.is_wanted = False
        assert await run
        assert engine.phases == [FALLING, SLEEPS, WAKES]
        assert engine.calls == ["sleep", "wake", "recheck"]
        assert engine.allocator.held(ENGINE).gpus == 1


async def test_open_requests_end_first_and_one_that_is_wanted_meanwhile_does_not_sleep() -> None:
    async with sleeper() as (engine, run):
        engine.open = 1
        await engine.reaches(FALLING)
        await until(lambda: engine.looks > 2, 10)
        assert not engine.calls
        engine.is_wanted = False
        assert await run
        assert not engine.calls


async def test_a_request_that_comes_nevertheless_wakes_it() -> None:
    async with sleeper() as (engine, run):
        await engine.reaches(SLEEPS)
        engine.open = 1
        assert await run
        assert engine.calls == ["sleep", "wake", "recheck"]


async def test_one_that_is_found_asleep_is_asked_nothing() -> None:
    async with sleeper(asleep=True) as (engine, run):
        await engine.reaches(SLEEPS)
        engine.is_wanted = False
        assert await run
        assert engine.calls == ["wake", "recheck"]


async def test_it_wakes_once_nobody_else_has_its_gpu_and_sleeps_on_if_nobody_needs_it() -> None:
    async with sleeper() as (engine, run):
        await engine.reaches(SLEEPS)
        await engine.places.acquire("other", ALONE)
        engine.is_wanted = False
        await engine.reaches(WAITS)
        assert engine.places.waits_for_gpus("eng")
        engine.is_wanted = True
        await engine.reaches(SLEEPS)
        engine.is_wanted = False
        await engine.reaches(WAITS)
        engine.places.release("other")
        assert await run
        assert engine.calls == ["sleep", "wake", "recheck"]


async def test_one_that_does_not_wake_is_to_be_started_anew() -> None:
    async with sleeper() as (engine, run):
        await engine.reaches(SLEEPS)
        engine.refuses, engine.is_wanted = "wake", False
        assert not await run


async def test_one_that_takes_too_long_to_wake_is_to_be_started_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sleeping, "WAKE_SECONDS", 0.01)
    async with sleeper() as (engine, run):
        await engine.reaches(SLEEPS)
        monkeypatch.setattr(engine, "wake", asyncio.Event().wait)
        engine.is_wanted = False
        assert not await run


async def test_one_that_does_not_fall_asleep_fails_and_one_that_ended_does_not() -> None:
    async with sleeper() as (engine, run):
        engine.refuses = "sleep"
        with pytest.raises(EngineFailure, match="did not fall asleep: it will not") as caught:
            await run
        assert caught.value.reason == "SleepFailed"
        assert engine.calls == ["sleep"] * 3
    async with sleeper() as (engine, run):
        await engine.reaches(SLEEPS)
        engine.has_ended = True
        assert not await run
        assert "wake" not in engine.calls
