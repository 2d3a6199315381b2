"""Jobs get shares of a machine with four GPUs (which nobody else can see), through a real agent."""

import json
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents.staged_agent import World, staged_world
from tests.support.environments.required import lacking
from tests.support.environments.sandbox import needed_sandbox
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.confinement import WorkloadLimits, cgroups
from windlass_agent.machine import Device, Machine, look

GPUS = tuple(Device(id=f"GPU-{number}") for number in range(4))
MACHINE = Machine(devices=GPUS, processors=look([]).processors, cpus=8, memory_bytes=8 * 2**30)


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with staged_world(database_url, tmp_path) as made:
        yield made


async def share(world: World, name: str) -> dict[str, Any]:
    """The share that a runner reports as its own."""
    await world.started(name)
    found: dict[str, Any] = json.loads((world.stage / f"{name}.share").read_text())
    return found


async def gpus(world: World, name: str) -> set[str]:
    value = (await share(world, name))["environ"]["CUDA_VISIBLE_DEVICES"]
    return set(value.split(",")) - {""}


async def queued(world: World, identifier: str) -> pb.WorkloadStatus:
    """The status of a job once it is in the agent's queue."""

    def there() -> pb.WorkloadStatus | None:
        status = world.statuses.get(identifier)
        return status if status and status.queue_position else None

    found: pb.WorkloadStatus = await until(there)
    return found


async def test_jobs_have_gpus_of_their_own_and_the_fifth_waits(world: World) -> None:
    async with world.agent(machine=MACHINE, slots=8):
        for number in range(4):
            await world.put(f"job-{number}", gpus=1)
        held = [await gpus(world, f"job-{number}-1") for number in range(4)]
        assert sorted(one for each in held for one in each) == [one.id for one in GPUS]
        await world.put("job-4", gpus=1)
        status = await queued(world, "job-4")
        assert (status.reason, status.message, status.queue_position) == (
            "WaitingForRoom", "Waiting for 1 GPU: 0 GPUs of 4 GPUs free", 1,
        )  # fmt: skip
        # Nobody waits behind it who wants none, and sees none.
        await world.put("job-5")
        assert await gpus(world, "job-5-1") == set()
        world.tell("job-2-1", "succeed")
        assert await gpus(world, "job-4-1") == held[2]


async def test_a_killed_agent_finds_what_its_jobs_have(world: World) -> None:
    names = json.dumps([one.id for one in GPUS])
    with world.agent_process({"WINDLASS_AGENT_GPUS": names}) as start:
        agent = start()
        await world.put("job-1", gpus=3)
        before = await gpus(world, "job-1-1")
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        start()
        await world.put("job-2", gpus=1)
        after = await gpus(world, "job-2-1")
        assert len(before) == 3
        assert before | after == {one.id for one in GPUS}
        await world.put("job-3", gpus=1)
        status = await queued(world, "job-3")
        assert status.message == "Waiting for a slot", "both slots are taken, of an adopted one too"
        world.tell("job-1-1", "succeed")
        assert await gpus(world, "job-3-1") <= before
    assert len(world.starts("job-1-1")) == 1


async def test_what_the_machine_has_not_is_refused_with_the_numbers(world: World) -> None:
    async with world.agent(machine=MACHINE):
        await world.put("job-1", gpus=5)
        status = await world.reach("job-1", pb.PHASE_FAILED)
        assert (status.reason, status.message) == (
            "NoRoom", "The machine has 4 GPUs; 5 GPUs were requested.",
        )  # fmt: skip


async def test_without_control_groups_a_job_is_kept_to_its_cpus(world: World) -> None:
    async with world.agent(machine=MACHINE):
        await world.put("job-1", cpus=1)
        found = await share(world, "job-1-1")
        assert found["cpus"] == [MACHINE.processors[0]]
        assert found["environ"]["OMP_NUM_THREADS"] == "1"
        await world.put("job-2")
        assert (await share(world, "job-2-1"))["cpus"] == list(MACHINE.processors)


async def test_the_control_plane_hears_what_is_taken(world: World) -> None:
    async with world.agent(machine=MACHINE):
        await world.put("job-1", gpus=3, cpus=2, memory_bytes=2**30)
        await gpus(world, "job-1-1")

        async def told() -> pb.Capacity:
            return (await world.plane.capacity()).clusters[0].capacity

        capacity = await until(told, holds=lambda found: found.used_gpus)
        assert (capacity.gpus, capacity.used_gpus) == (4, 3)
        assert (capacity.used_cpus, capacity.used_memory_bytes) == (2, 2**30)
        assert capacity.held_by_engines.gpus == 0
        assert sum(device.used for device in capacity.devices) == 3


# A runner within walls, which reach no stage: it says in its log what it has, then takes memory.
WALLED = """
import json, os, sys
print("FOUND", json.dumps([sorted(os.sched_getaffinity(0)), dict(os.environ)]), flush=True)
held = [bytearray(2**20) for _ in range(1024)] if "hog" in sys.argv[1] else []
while True:
    sys.stdin.close() or __import__("time").sleep(60)
"""


def walled(word: str = "idle") -> dict[str, Any]:
    needed_sandbox()
    command = (sys.executable, "-I", "-S", "-c", WALLED, word)
    return {"machine": MACHINE, "confinement": "required", "runner_command": command}


async def said(world: World, name: str) -> tuple[list[int], dict[str, str]]:
    """The CPUs and variables of a runner within walls."""
    log = await until(partial(world.desk.log, name), holds=lambda log: b"FOUND" in log)
    cpus, environ = json.loads(log.partition(b"FOUND")[2].splitlines()[0])
    return cpus, environ


def groups_of(pid: int) -> dict[str, Path]:
    """A process's control groups by controller; that of cgroup v2 by an empty name."""
    found = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = Path("/sys/fs/cgroup", controller, group.strip("/"))
    return found


@pytest.fixture
def grouped() -> None:
    trial = cgroups.Group("allotment-trial")
    made = trial.make(WorkloadLimits(memory=2**28, cpus=1)) and trial.bounds_cpus
    trial.remove()
    if not made:
        lacking("needs control groups of memory and CPUs that may be divided")


@pytest.mark.usefixtures("grouped")
async def test_a_control_group_bounds_cpus_memory_and_processes(world: World) -> None:
    async with world.agent(**walled()):
        await world.put("job-1", cpus=2, memory_bytes=2**29, gpus=2)
        cpus, environ = await said(world, "job-1")
        assert cpus == list(MACHINE.processors), "a quota leaves the choice to the kernel"
        assert environ["OMP_NUM_THREADS"] == "1", "of two processes, one for each GPU"
        assert environ["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
        record = json.loads((world.data / "workloads" / "job-1-1.json").read_text())
        found = groups_of(record["pid"])
        if "cpu" in found:
            read = ("cpu", "cpu.cfs_quota_us"), ("memory", "memory.limit_in_bytes")
            said_ = [(found[kind] / file).read_text().strip() for kind, file in read]
            assert said_ == ["200000", str(2**29)]
        else:
            assert (found[""] / "cpu.max").read_text().split() == ["200000", "100000"]
            assert (found[""] / "memory.max").read_text().strip() == str(2**29)
        made = [path for path in found.values() if path.name == "windlass-job-1-1"]
        await world.put("job-1", generation=2, desired=pb.DESIRED_STATE_DELETED)
        await world.reach("job-1", pb.PHASE_STOPPED, generation=2)
        assert made
        assert not any(path.exists() for path in made)


@pytest.mark.usefixtures("grouped")
async def test_who_takes_more_memory_than_asked_for_is_ended_and_told(world: World) -> None:
    async with world.agent(**walled("hog")):
        await world.put("job-1", memory_bytes=2**28)
        status = await world.reach("job-1", pb.PHASE_FAILED)
        assert (status.reason, status.message) == (
            "OutOfMemory",
            "The job took more than the 256 MiB of memory that it asked for "
            "(windlass.resources.memory_bytes).",
        )


async def test_where_no_group_can_be_made_walls_keep_a_job_to_its_cpus(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "_parents", lambda: ([], None))
    async with world.agent(**walled()):
        await world.put("job-1", cpus=1)
        cpus, _ = await said(world, "job-1")
        assert cpus == [MACHINE.processors[0]]
