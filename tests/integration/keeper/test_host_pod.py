"""A pod that hosts trainers, with a real agent's side: launcher, keepers and trainers are real."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.agents.file_store import file_store
from tests.support.agents.hosting_cluster import (
    VERSION,
    HostedLease,
    HostingCluster,
    hosting_cluster,
)
from tests.support.factories import tuning_engines as make
from tests.support.waiting import until
from tests.unit.agent.kubernetes.render.test_engine import GIB
from tests.unit.agent.kubernetes.render.test_lease import lease
from tests.unit.agent.kubernetes.render.test_trainer_pods import trainer

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.names import engine_name
from windlass_agent.executors.kubernetes.engines import residents as sitting

pytestmark = pytest.mark.torch


def worker(name: str, desired: Any = pb.DESIRED_STATE_RUNNING) -> pb.Workload:
    made = trainer("main", gpus=1, lease_id="lease-1")
    made.id, made.project_id, made.desired = name, "proj_A", desired
    made.engine.memory_bytes = 4 * GIB
    return made


def gone(name: str) -> pb.Workload:
    return pb.Workload(id=name, generation=100, desired=pb.DESIRED_STATE_DELETED)


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostingCluster]:
    make.network().save_pretrained(tmp_path / "store" / VERSION)
    with file_store(tmp_path / "store") as store:
        async with hosting_cluster(tmp_path, store, monkeypatch) as made:
            yield made
    assert not [one for one in made.leases.values() if one.left()]


async def hosted(cluster: HostingCluster, *names: str) -> HostedLease:
    """The lease on which these trainers serve."""
    await cluster.apply(lease("main", gpus=1, memory_bytes=16 * GIB))
    await cluster.reaches("lease-1", pb.PHASE_RUNNING)
    for name in names:
        await cluster.apply(worker(name))
    for name in names:
        await cluster.reaches(name, pb.PHASE_RUNNING)
    return cluster.leases["lease-1"]


def trainers_of(pod: HostedLease, name: str) -> list[psutil.Process]:
    """The process that is kept, of a resident."""
    at = str(pod.residents / name)
    return [
        one for one in pod.left() if "windlass_agent.tuning" in (words := " ".join(one.cmdline()))
        and at in words
    ]  # fmt: skip


async def answers(cluster: HostingCluster, name: str) -> bool:
    """True if the trainer of a workload is behind its door."""
    found = cluster.doors.find(name)
    assert found is not None
    host, port, server = found
    assert server == engine_name(name)
    reader, writer = await asyncio.open_connection(
        host, port, ssl=cluster.doors.tls, server_hostname=server
    )
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
    try:
        # The settings that a server of HTTP/2 begins with.
        return (await asyncio.wait_for(reader.readexactly(9), 30))[3] == 4
    finally:
        writer.transport.abort()


async def test_one_is_killed_and_the_other_goes_on_and_each_has_a_door_of_its_own(
    cluster: HostingCluster,
) -> None:
    pod = await hosted(cluster, "eng-a", "eng-b")
    assert await answers(cluster, "eng-a")
    assert await answers(cluster, "eng-b")
    (kept,) = trainers_of(pod, "eng-b")
    (victim,) = trainers_of(pod, "eng-a")
    victim.kill()
    said = await cluster.reaches("eng-a", pb.PHASE_FAILED, "ProcessExited")
    assert "137" in said.message
    await until(lambda: not (pod.residents / "eng-a").exists())
    assert not [one for one in pod.left() if "eng-a" in " ".join(one.cmdline())]
    assert cluster.status("eng-b").phase == pb.PHASE_RUNNING
    assert (await answers(cluster, "eng-b"), kept.is_running()) == (True, True)
    # What nobody wants ends, and another begins in its place.
    for name in ("eng-a", "eng-b"):
        await cluster.apply(gone(name))
    await until(lambda: not cluster.status("eng-b").workload_id)
    # A zombie that its launcher is about to reap has left all that it had.
    await until(lambda: not kept.is_running())
    assert not list(pod.residents.iterdir())
    await hosted(cluster, "eng-c")
    assert await answers(cluster, "eng-c")


async def test_nothing_outlives_a_launcher_that_is_killed_and_the_next_begins_clean(
    cluster: HostingCluster,
) -> None:
    pod = await hosted(cluster, "eng-a")
    (before,) = trainers_of(pod, "eng-a")
    (pod.residents / "left-behind").mkdir()
    await cluster.end(pod, signal.SIGKILL)
    await until(lambda: not pod.left())
    await cluster.reaches("eng-a", pb.PHASE_STARTING)
    await pod.start()
    await cluster.reaches("eng-a", pb.PHASE_RUNNING)
    (after,) = trainers_of(pod, "eng-a")
    assert after.pid != before.pid
    assert [one.name for one in pod.residents.iterdir()] == ["eng-a"]
    # A lease that goes takes all with it, in order.
    await cluster.apply(gone("lease-1"))
    await until(lambda: not cluster.leases)
    assert pod.process.returncode == 0
    assert not pod.left()
    await cluster.reaches("eng-a", pb.PHASE_PENDING, "NoLease")


async def test_residents_go_on_while_the_agent_is_away_and_those_nobody_wants_end(
    cluster: HostingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sitting, "UNKNOWN_SECONDS", 2.0)
    pod = await hosted(cluster, "eng-a", "eng-b")
    pids = {name: trainers_of(pod, name)[0] for name in ("eng-a", "eng-b")}
    await cluster.stop_agent()
    await cluster.start_agent()
    # The control plane tells of what it wants.
    await hosted(cluster, "eng-a")
    assert pids["eng-a"].is_running()
    assert await answers(cluster, "eng-a")
    await until(lambda: not trainers_of(pod, "eng-b"), 120)
    assert pids["eng-a"].is_running()
