"""The sleep of an engine on a machine, with an engine that only says what it was asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.port import EngineCapabilities, EngineControl, EngineError
from windlass_agent.executors.process.allocator import ENGINE, JOB, Allocator
from windlass_agent.executors.process.allotment import Allotment, ResourceRequest
from windlass_agent.executors.process.engines import draining, engine_run, sleeping
from windlass_agent.executors.process.engines.engine_failure import EngineFailure
from windlass_agent.executors.process.engines.engine_process import EngineProcess
from windlass_agent.executors.process.engines.engine_run import EngineRun
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

    def __init__(self, *, asleep: bool = False, weight_bytes: int = 0):
        self.is_asleep, self.is_wanted, self.has_ended = asleep, True, False
        self.falls_late = self.was_reaped = False
        self.weight_bytes = weight_bytes
        self.has_slept = asyncio.Event()
        self.has_slept.set()
        self.open = self.looks = 0
        self.refuses = self.training_key = ""
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
        await self.has_slept.wait()

    async def wake(self) -> None:
        await self._do("wake", asleep=False)

    async def _do(self, call: str, *, asleep: bool) -> None:
        self.calls.append(call)
        if self.refuses == call:
            if self.falls_late:
                self.refuses, self.is_asleep, self.is_wanted = "", True, False
            raise EngineError("it will not")
        self.is_asleep = asleep

    async def ready(self) -> bool:
        return True

    async def served(self) -> EngineCapabilities:
        return EngineCapabilities(sleep=True)

    async def warm(self, *_: str) -> None:
        self.calls.append("warm")

    async def load(self) -> EngineLoad:
        raise EngineError("not known")

    async def close(self) -> None:
        pass

    async def recheck(self) -> None:
        self.calls.append("recheck")

    def ended(self) -> bool:
        return self.has_ended

    def last_words(self) -> str:
        return "it crashed"

    def refused(self) -> bool:
        return False

    def output(self) -> str:
        return ""

    async def end(self, *, graceful: bool) -> None:
        self.was_reaped = True

    def become(self, phase: "pb.Phase.ValueType", reason: str) -> None:
        self.phases.append((phase, reason))

    async def reaches(self, phase: tuple[Any, str]) -> None:
        await until(lambda: self.phases[-1:] == [phase], 10)


@asynccontextmanager
async def sleeper(**options: Any) -> AsyncIterator[tuple[Sleeper, "asyncio.Task[bool]"]]:
    made = Sleeper(**options)
    await made.places.acquire("eng", ALONE)
    run = asyncio.create_task(
        EngineSleep(
            workload_id="eng",
            control=cast("EngineControl", made),
            process=cast("EngineProcess", made),
            places=made.places,
            weight_bytes=made.weight_bytes,
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


async def test_one_that_is_found_falling_asleep_lends_its_gpu_once_it_has() -> None:
    async with sleeper(asleep=True) as (engine, run):
        engine.has_slept.clear()
        await until(lambda: engine.calls == ["sleep"], 10)
        assert engine.phases == [FALLING]
        assert engine.allocator.held(ENGINE).gpus == 1
        engine.has_slept.set()
        await engine.reaches(SLEEPS)
        engine.is_wanted = False
        assert await run
        assert engine.calls == ["sleep", "wake", "recheck"]


async def test_one_that_sleeps_unwanted_wakes_once_nobody_else_has_its_gpu() -> None:
    async with sleeper(asleep=True) as (engine, run):
        engine.is_wanted = False
        # An adopted one; a job got its GPU from the agent before this one.
        engine.allocator.take((JOB, "job"), Allotment(devices=engine.allocator.machine.devices))
        await engine.reaches(WAITS)
        assert "wake" not in engine.calls
        engine.allocator.release((JOB, "job"))
        assert await run
        assert engine.calls[-2:] == ["wake", "recheck"]


async def test_one_that_falls_asleep_after_a_call_that_was_given_up_wakes() -> None:
    async with sleeper() as (engine, run):
        engine.refuses, engine.falls_late = "sleep", True
        assert await run
        assert engine.calls[-2:] == ["wake", "recheck"]


async def test_one_that_neither_sleeps_nor_should_is_left_alone() -> None:
    async with sleeper() as (engine, run):
        engine.is_wanted = False
        assert await run
        assert not engine.calls
        assert not engine.phases


def adopted(engine: Sleeper, folder: Path, *, asleep: bool, killed: bool = False) -> EngineRun:
    """The run of an engine that runs already, and is told anew how it should be."""
    house = MagicMock(places=engine.places, engines={"builtin": MagicMock()})
    house.engines["builtin"].control.return_value = engine
    house.files.return_value.socket = folder
    house.models.path.return_value = folder
    house.confinement.kills.return_value = killed
    allotment = Allotment(devices=engine.allocator.machine.devices, alone=True)
    process = cast("EngineProcess", engine)
    run = EngineRun(workload(asleep=asleep), house, process=process, allotment=allotment)
    run.apply(workload(asleep=asleep))
    return run


def workload(*, asleep: bool) -> pb.Workload:
    spec = pb.EngineWorkload(engine="builtin", sleeps=True, asleep=asleep)
    return pb.Workload(id="eng", desired=pb.DESIRED_STATE_RUNNING, engine=spec)


async def test_one_that_ends_in_its_sleep_waits_for_its_gpu_once_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_run, "RESTART_SECONDS", 0.0)
    engine = Sleeper(asleep=True)
    run = adopted(engine, tmp_path, asleep=True)
    await until(lambda: engine.places.lends("eng"), 10)
    await engine.places.acquire("other", ALONE)
    engine.has_ended = True
    await until(lambda: engine.was_reaped, 10)
    await until(lambda: run.status().phase == pb.PHASE_SLEEPING, 10)
    assert not engine.places.waits_for_gpus("eng")
    run.apply(workload(asleep=False))
    await until(lambda: engine.places.waits_for_gpus("eng"), 10)
    await run.end(drain=False, leave=True)


async def test_one_that_is_killed_for_its_machines_memory_is_told_of_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_run, "QUICK_FAILURES", 1)
    engine = Sleeper()
    engine.has_ended = True
    run = adopted(engine, tmp_path, asleep=False, killed=True)
    await until(lambda: run.status().phase == pb.PHASE_FAILED, 10)
    assert "of its machine's memory for weights" in run.status().message
    assert "GPU" not in run.status().message
    await run.end(drain=False, leave=True)


async def test_an_adopted_engine_that_sleeps_does_not_answer_while_a_job_has_its_gpu(
    tmp_path: Path,
) -> None:
    engine = Sleeper(asleep=True)
    engine.allocator.take((JOB, "job"), Allotment(devices=engine.allocator.machine.devices))
    # The snapshot comes before the engine's first answer: somebody asks for it.
    run = adopted(engine, tmp_path, asleep=False)
    await until(lambda: run.status().reason == WAITS[1], 10)
    assert "wake" not in engine.calls
    engine.allocator.release((JOB, "job"))
    await until(lambda: run.status().phase == pb.PHASE_RUNNING, 10)
    assert engine.calls[-2:] == ["wake", "warm"]
    await run.end(drain=False, leave=True)


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


async def test_it_sleeps_on_once_the_client_that_woke_it_has_left() -> None:
    async with sleeper() as (engine, run):
        await engine.reaches(SLEEPS)
        await engine.places.acquire("other", ALONE)
        engine.open = 1
        await engine.reaches(WAITS)
        engine.open = 0
        await engine.reaches(SLEEPS)
        assert not engine.places.waits_for_gpus("eng")
        assert not run.done()


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


async def test_large_weights_have_longer_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeping, "WAKE_SECONDS", 0.0)
    read = asyncio.Event()
    async with sleeper(weight_bytes=10**10) as (engine, run):
        await engine.reaches(SLEEPS)
        monkeypatch.setattr(engine, "wake", read.wait)
        engine.is_wanted = False
        await engine.reaches(WAKES)
        await asyncio.wait({run}, timeout=0.05)
        assert not run.done()
        read.set()
        assert await run


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
