"""An agent at rest: what it does while nothing is wanted of it, and nobody is silent."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.waiting import settled, soon, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent import agent as agent_module
from windlass_agent.agent import Agent
from windlass_agent.engines.load import EngineLoad

RUNNING = pb.DESIRED_STATE_RUNNING


class Plane:
    """The control plane's side of one session, without a connection."""

    def __init__(self) -> None:
        self.deltas: asyncio.Queue[pb.WorkloadsDelta] = asyncio.Queue()
        self.told: list[pb.WorkloadStatus] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def watch(self, request: pb.WatchRequest) -> AsyncIterator[pb.WorkloadsDelta]:
        while True:
            yield await self.deltas.get()

    async def heartbeat(self, session_id: str, capacity: pb.Capacity) -> bool:
        await self.answers.wait()
        return True

    async def report(self, session_id: str, statuses: list[pb.WorkloadStatus]) -> None:
        self.told += statuses


class Counted:
    """An executor that runs nothing, and counts how often it is asked what runs."""

    def __init__(self) -> None:
        self.applied: list[pb.Workload] = []
        self.shown: dict[str, pb.WorkloadStatus] = {}
        self.looks = 0

    async def adopt(self) -> None: ...
    async def close(self) -> None: ...

    async def apply(self, workload: pb.Workload) -> None:
        self.applied.append(workload)
        self.shown[workload.id] = pb.WorkloadStatus(
            workload_id=workload.id, generation=workload.generation, phase=pb.PHASE_PENDING
        )

    def statuses(self) -> list[pb.WorkloadStatus]:
        self.looks += 1
        return list(self.shown.values())

    async def engine_loads(self) -> dict[str, EngineLoad]:
        return {}

    def capacity(self) -> pb.Capacity:
        return pb.Capacity()


@pytest.fixture
async def plane() -> Plane:
    return Plane()


@pytest.fixture
async def executor(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counted]:
    monkeypatch.setattr(agent_module, "LOOK_SECONDS", 0.01)
    executor = Counted()
    control: Any = plane
    running = asyncio.create_task(
        Agent(control, executor, asyncio.Event(), kind="process").run(), name="agent"
    )
    yield executor
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class Clock:
    """The machine's, which a test moves on."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def job(desired: "pb.DesiredState.ValueType" = RUNNING, *, generation: int = 1) -> pb.Workload:
    return pb.Workload(
        id="job", kind=pb.WORKLOAD_KIND_RUN_TO_COMPLETION, generation=generation, desired=desired
    )


async def test_statuses_are_looked_at_while_something_is_wanted(
    plane: Plane, executor: Counted
) -> None:
    plane.deltas.put_nowait(pb.WorkloadsDelta(snapshot=True))
    await settled(lambda: executor.looks)
    plane.deltas.put_nowait(pb.WorkloadsDelta(workloads=[job()]))
    await until(lambda: plane.told)
    # No driver says so.
    executor.shown["job"] = pb.WorkloadStatus(
        workload_id="job", generation=1, phase=pb.PHASE_RUNNING
    )
    await until(lambda: plane.told[-1].phase == pb.PHASE_RUNNING)
    plane.deltas.put_nowait(pb.WorkloadsDelta(workloads=[job(pb.DESIRED_STATE_DELETED)]))
    await until(lambda: executor.applied[-1].desired == pb.DESIRED_STATE_DELETED)
    executor.shown.clear()
    await until(lambda: plane.told[-1].phase == pb.PHASE_STOPPED)
    await settled(lambda: executor.looks)


async def test_a_change_after_the_pause_of_a_long_report_is_told_at_once(
    plane: Plane, executor: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(agent_module, "time", clock)
    monkeypatch.setattr(agent_module, "LOOK_SECONDS", 60.0)
    # Whatever it took was long.
    monkeypatch.setattr(agent_module, "REPORT_SHARE", 10**9)
    plane.deltas.put_nowait(pb.WorkloadsDelta(snapshot=True))
    plane.deltas.put_nowait(pb.WorkloadsDelta(workloads=[job()]))
    await until(lambda: plane.told)
    clock.ahead = 61.0
    async with soon(5):
        plane.deltas.put_nowait(pb.WorkloadsDelta(workloads=[job(generation=2)]))
        await until(lambda: plane.told[-1].generation == 2)


async def test_a_shorter_time_limit_of_silence_holds_at_once(
    plane: Plane, executor: Counted
) -> None:
    plane.deltas.put_nowait(pb.WorkloadsDelta(snapshot=True, suspend_seconds=3600))
    await settled(lambda: executor.looks)
    plane.answers.clear()
    plane.deltas.put_nowait(pb.WorkloadsDelta(snapshot=True, suspend_seconds=1, workloads=[job()]))
    await until(lambda: executor.applied)
    await until(lambda: executor.applied[-1].desired == pb.DESIRED_STATE_STOPPED)
    await until(lambda: executor.applied[-1].desired == pb.DESIRED_STATE_DELETED)
    plane.answers.set()
    await until(lambda: executor.applied[-1].desired == pb.DESIRED_STATE_STOPPED)
