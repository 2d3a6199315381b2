"""The engine driver with real engines: start, adapters, crash, adoption, end."""

import asyncio
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from tests.support.agents.engine_machine import START_SECONDS, machine, model_store, say, workload
from tests.support.agents.file_store import Store, files
from tests.support.environments.postgres import reachable_folder
from tests.support.waiting import stays, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.confinement import WorkloadLimits, cgroups, confinement, innermost
from windlass_agent.download import DownloadError, ModelCache
from windlass_agent.engines.builtin_engine import BuiltinEngine
from windlass_agent.executors.process.allocator import ENGINE
from windlass_agent.executors.process.engines.engine_process import EngineRecord
from windlass_agent.executors.process.processes import start_time

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A base model and two adapters."""
    with model_store(tmp_path_factory.mktemp("store")) as made:
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    # A socket's path must be short.
    with reachable_folder() as folder:
        yield folder


async def test_what_a_dead_engine_has_started_ends_with_the_next_agent(
    store: Store, folder: Path
) -> None:
    leader = subprocess.Popen(["sh", "-c", "sleep 1000 & wait"], start_new_session=True)
    children = await until(lambda: psutil.Process(leader.pid).children())
    record = EngineRecord(
        workload=workload(store).SerializeToString(),
        argument="sleep",
        pid=leader.pid,
        started=start_time(leader.pid),
    )
    leader.kill()
    leader.wait()
    assert children[0].is_running()
    path = folder / "engines" / "eng-1.json"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(msgspec.json.encode(record))
    async with machine(folder) as host:
        assert host.driver.statuses() == []
        assert not path.exists()
        await until(lambda: not children[0].is_running())


@pytest.mark.parametrize("days", [1, 8])
async def test_what_a_trained_engine_saved_waits_for_its_next_process(
    store: Store, folder: Path, days: int
) -> None:
    ended = workload(store)
    ended.engine.training = "hogwild"
    record = EngineRecord(workload=ended.SerializeToString(), argument="ended")
    path = folder / "engines" / "eng-1.json"
    checkpoint = path.with_suffix(".checkpoints") / "run-1" / "checkpoint"
    checkpoint.mkdir(mode=0o700, parents=True)
    path.write_bytes(msgspec.json.encode(record))
    then = time.time() - days * 86_400
    os.utime(path, (then, then))
    async with machine(folder) as host:
        assert host.driver.statuses() == []
        assert (path.exists(), checkpoint.exists()) == (days < 7, days < 7)
        deleted = pb.Workload(id="eng-1", generation=2, desired=pb.DESIRED_STATE_DELETED)
        await host.driver.apply(deleted)
        assert not list(path.parent.iterdir())


async def test_an_engine_lives_from_wish_to_end(store: Store, folder: Path) -> None:
    async with machine(folder) as host:
        await host.driver.apply(workload(store, "mv-a"))
        status = await host.reaches(pb.PHASE_RUNNING, loaded=1)
        assert status.endpoint.startswith("unix:///")
        assert status.capabilities.adapters
        assert status.capabilities.context_length == 512
        assert status.adapters[0] == pb.LoadedAdapter(id="ft:mv-a", version_id="mv-a")
        base, first = await say(status, "toy"), await say(status, "ft:mv-a")
        assert base != first
        # Adapters change without a restart.
        process = host.processes()
        await host.driver.apply(workload(store, "mv-b", generation=2))
        status = await until(
            lambda: (s := host.status()) and [a.id for a in s.adapters] == ["ft:mv-b"] and s, 30
        )
        assert (status.phase, status.generation) == (pb.PHASE_RUNNING, 2)
        assert await say(status, "ft:mv-b") not in (base, first)
        assert host.processes() == process
        # A wish older than the one that is followed changes nothing.
        await host.driver.apply(workload(store, "mv-a", generation=1))
        status = host.status()
        assert status is not None
        assert status.generation == 2
        await host.driver.apply(
            pb.Workload(id="eng-1", generation=3, desired=pb.DESIRED_STATE_DELETED)
        )
        await until(lambda: host.status() is None)
        assert not host.processes()
        assert not list((folder / "s").iterdir())
        assert not list((folder / "engines").iterdir())


@pytest.mark.long
async def test_a_killed_engine_comes_back_with_its_adapters(store: Store, folder: Path) -> None:
    async with machine(folder) as host:
        await host.driver.apply(workload(store, "mv-a"))
        before = await say(await host.reaches(pb.PHASE_RUNNING, loaded=1), "ft:mv-a")
        (process,) = host.processes()
        process.kill()
        await until(lambda: (s := host.status()) is not None and not s.endpoint)
        status = await host.reaches(pb.PHASE_RUNNING, loaded=1)
        assert await say(status, "ft:mv-a") == before
        assert [one.pid for one in host.processes()] != [process.pid]


async def test_an_engine_outlives_its_agent_and_is_taken_over(store: Store, folder: Path) -> None:
    async with machine(folder, stop_on_close=False) as first:
        await first.driver.apply(workload(store, "mv-a"))
        await first.reaches(pb.PHASE_RUNNING, loaded=1)
        (process,) = first.processes()
    assert process.is_running()
    variables = process.environ()
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["OMP_NUM_THREADS"]) == ("GPU-a", "1")
    async with machine(folder) as second:
        held = second.allocator.held(ENGINE)
        assert (held.gpus, held.cpus) == (1, 1), "its share goes over with it"
        assert second.status() is not None, "or the control plane could not say to end it"
        await second.driver.apply(workload(store, "mv-a", generation=2))
        status = await second.reaches(pb.PHASE_RUNNING, generation=2, loaded=1)
        assert [one.pid for one in second.processes()] == [process.pid]
        assert await say(status, "ft:mv-a")
    assert not second.processes()


async def test_a_model_that_cannot_be_served_fails_with_its_last_words(
    store: Store, folder: Path
) -> None:
    async with machine(folder) as host:
        broken = workload(store)
        root, _ = store
        (root / "mv-broken").mkdir(exist_ok=True)
        for path in (root / "mv-toy").iterdir():
            content = b"not weights" if path.suffix == ".safetensors" else path.read_bytes()
            (root / "mv-broken" / path.name).write_bytes(content)
        broken.engine.model_version_id = "mv-broken"
        del broken.engine.model_files[:]
        broken.engine.model_files.extend(files(store, "mv-broken"))
        await host.driver.apply(broken)
        status = await host.reaches(pb.PHASE_FAILED)
        assert "model_load_failed" in status.message or "Error" in status.message
        assert not host.processes()
        # The same generation stays failed; a newer one begins again.
        await host.driver.apply(broken)
        await stays(lambda: (status := host.status()) and status.phase == pb.PHASE_FAILED)
        await host.driver.apply(workload(store, generation=2))
        await host.reaches(pb.PHASE_RUNNING, generation=2)


async def test_an_adapter_that_does_not_fit_is_told_beside_those_that_do(
    store: Store, folder: Path
) -> None:
    async with machine(folder) as host:
        wished = workload(store, "mv-a", "mv-b")
        for file in wished.engine.adapters[1].files:
            if file.path.endswith(".safetensors"):
                file.sha256 = bytes(32)
        await host.driver.apply(wished)
        status = await until(
            lambda: s if (s := host.status()) and len(s.adapters) == 2 else None, START_SECONDS
        )
        errors = {adapter.id: adapter.error for adapter in status.adapters}
        assert errors["ft:mv-a"] == ""
        assert "SHA-256" in errors["ft:mv-b"]
        # With what was promised it loads at once.
        await host.driver.apply(workload(store, "mv-a", "mv-b", generation=2))
        await host.reaches(pb.PHASE_RUNNING, generation=2, loaded=2)


async def test_an_engine_waits_for_its_place_and_can_be_deleted_there(
    store: Store, folder: Path
) -> None:
    async with machine(folder, slots=1) as host:
        await host.driver.apply(workload(store))
        await host.driver.apply(workload(store, identifier="eng-2"))
        waiting = await until(
            lambda: s if (s := host.status("eng-2")) and s.queue_position == 1 else None, 10
        )
        assert waiting.phase == pb.PHASE_PENDING
        await host.driver.apply(
            workload(store, identifier="eng-2", generation=2, desired=pb.DESIRED_STATE_DELETED)
        )
        await until(lambda: host.status("eng-2") is None)
        await host.driver.apply(workload(store, identifier="eng-2", generation=3))
        # Deleted in the middle of its start, it leaves nothing and gives up its place.
        await until(lambda: host.processes())
        await host.driver.apply(
            pb.Workload(id="eng-1", generation=2, desired=pb.DESIRED_STATE_DELETED)
        )
        await until(lambda: host.status("eng-1") is None)
        await until(
            lambda: (s := host.status("eng-2")) is not None and s.phase == pb.PHASE_RUNNING,
            START_SECONDS,
        )


async def test_engines_that_take_a_whole_gpu_get_none_that_another_has(
    store: Store, folder: Path
) -> None:
    greedy = {"builtin": BuiltinEngine(shares_gpus=False)}
    async with machine(folder, kinds=greedy, stop_on_close=False) as host:
        await host.driver.apply(workload(store))
        await host.reaches(pb.PHASE_RUNNING)
        await host.driver.apply(workload(store, identifier="eng-2"))
        lacking = "Waiting for 1 GPU: 0 GPUs of 1 GPU free"
        await until(lambda: (s := host.status("eng-2")) and s.message == lacking)
        await stays(lambda: len(host.processes()) == 1)
    async with machine(folder, kinds=greedy) as host:
        await host.reaches(pb.PHASE_RUNNING)
        await host.driver.apply(workload(store, identifier="eng-2"))
        await until(lambda: (s := host.status("eng-2")) and s.message == lacking)


async def test_engines_of_a_small_machine_start_one_after_the_other(
    store: Store, folder: Path
) -> None:
    async with machine(folder, cpus=2) as host:
        await host.driver.apply(workload(store))
        await until(lambda: host.processes())
        await host.driver.apply(workload(store, identifier="eng-2"))
        waiting = await until(
            lambda: s if (s := host.status("eng-2")) and s.reason == "WaitingToStart" else None
        )
        assert waiting.message == "Waiting until other engines of the machine have started"
        assert len(host.processes()) == 1
        await host.reaches(pb.PHASE_RUNNING)
        await until(
            lambda: (s := host.status("eng-2")) is not None and s.phase == pb.PHASE_RUNNING,
            START_SECONDS,
        )


async def test_a_stopped_engine_ends_and_says_so(store: Store, folder: Path) -> None:
    async with machine(folder) as host:
        await host.driver.apply(workload(store))
        await host.reaches(pb.PHASE_RUNNING)
        await host.driver.apply(workload(store, generation=2, desired=pb.DESIRED_STATE_STOPPED))
        await host.reaches(pb.PHASE_STOPPED, generation=2)
        assert not host.processes()


async def test_a_crash_of_the_agent_in_the_middle_of_a_start_leaves_no_orphan(
    store: Store, folder: Path
) -> None:
    async with machine(folder, stop_on_close=False) as first:
        await first.driver.apply(workload(store))
        (process,) = await until(lambda: first.processes())
    record = next((folder / "engines").glob("*.json"))
    # As if it had died between the start and the note of the pid.
    noted = json.loads(record.read_text())
    assert innermost(noted["pid"]) == process.pid
    record.write_text(json.dumps(noted | {"pid": 0, "started": 0.0}))
    async with machine(folder) as second:
        assert second.status() is not None
        await second.driver.apply(
            pb.Workload(id="eng-1", generation=2, desired=pb.DESIRED_STATE_DELETED)
        )
        await until(lambda: second.status() is None)
        assert not second.processes()


async def test_what_is_downloaded_is_whole_or_not_there(store: Store, folder: Path) -> None:
    cache = ModelCache(folder / "models", patience_seconds=0.2)
    wanted = files(store, "mv-a")
    one, two = await asyncio.gather(cache.fetch("mv-a", wanted), cache.fetch("mv-a", wanted))
    assert one == two
    for file in wanted:
        assert hashlib.sha256((one / file.path).read_bytes()).digest() == file.sha256
    kept = {path: path.stat().st_mtime_ns for path in one.iterdir()}
    await cache.fetch("mv-a", wanted)
    assert {path: path.stat().st_mtime_ns for path in one.iterdir()} == kept, "not fetched again"
    # A file that was cut short on the disk is noticed.
    (one / wanted[0].path).write_bytes(b"")
    await cache.fetch("mv-a", wanted)
    assert (one / wanted[0].path).stat().st_size == wanted[0].bytes
    for change in ({"path": "../evil"}, {"sha256": bytes(32)}, {"bytes": 3}, {"url": "file:///x"},
                   {"url": wanted[0].url + "x"}, {"url": "http://127.0.0.1:9/x"}):  # fmt: skip
        bad = files(store, "mv-b")
        for name, value in change.items():
            setattr(bad[0], name, value)
        with pytest.raises(DownloadError):
            await cache.fetch("mv-b", bad)
        assert not (folder / "models" / "mv-b").exists()
    with pytest.raises(DownloadError):
        await cache.fetch("../x", wanted)
    assert not (folder / "evil").exists()


@pytest.mark.parametrize(
    ("gpus", "arguments", "said"),
    [
        (
            (),
            pb.EngineArguments(kv_offload_bytes=2**30),
            "kv_offload_bytes is for engines with GPUs",
        ),
        (
            (),
            pb.EngineArguments(kv_cache_bytes=2**44),
            "kv_cache_bytes of 16 TiB do not fit into the ",
        ),
        (
            ("GPU-a",),
            pb.EngineArguments(kv_offload_bytes=2**44),
            "kv_offload_bytes of 16 TiB do not fit",
        ),
    ],
)
async def test_an_argument_that_the_machine_has_no_room_for_is_refused(
    folder: Path, store: Store, gpus: tuple[str, ...], arguments: pb.EngineArguments, said: str
) -> None:
    async with machine(folder, gpus=gpus) as host:
        await host.driver.apply(workload(store, arguments=arguments))
        failed = await host.reaches(pb.PHASE_FAILED)
    assert failed.reason == "NoRoom"
    assert said in failed.message


async def test_memory_that_the_machine_does_not_have_is_refused(folder: Path, store: Store) -> None:
    async with machine(folder) as host:
        await host.driver.apply(workload(store, memory_bytes=2**44))
        failed = await host.reaches(pb.PHASE_FAILED)
    assert failed.reason == "NoRoom"
    assert "16384 GiB" in failed.message or "16 TiB" in failed.message


async def test_an_engine_that_takes_too_much_memory_says_so(folder: Path, store: Store) -> None:
    group = cgroups.Group("engine-memory")
    bounded = group.make(WorkloadLimits(memory=2**28)) and confinement("preferred").confines
    group.remove()
    if not bounded:
        return
    async with machine(folder) as host:
        wanted = workload(store)
        # Less than it has before it reads libraries, whose pages the kernel could take back.
        wanted.resources.memory_bytes = 2**25
        await host.driver.apply(wanted)
        failed = await host.reaches(pb.PHASE_FAILED)
    killed = "The engine ran out of memory: it may use 32 MiB of its machine's."
    # Seldom the kernel refuses the memory instead, and then the program's own words are told.
    refused = "failed to map segment" in failed.message
    assert failed.message.startswith(killed) or refused
    advised = "Lower context_length, max_concurrency or kv_cache_bytes" in failed.message
    assert (failed.reason == "OutOfMemory" and advised) or refused
