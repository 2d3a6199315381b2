"""Prefetches on a machine, with files behind HTTP and a disk that has room or has none."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents.file_store import Store, file_store, files
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.download import DownloadError, ModelCache
from windlass_agent.download import cache as subject
from windlass_agent.download.room import held_bytes
from windlass_agent.executors.process.prefetches import PrefetchDriver

KIB = 1024
GIB = 2**30


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    root = tmp_path_factory.mktemp("origin")
    for version in ("mv-a", "mv-b", "mv-c"):
        (root / version).mkdir()
        (root / version / "weights").write_bytes(os.urandom(64 * KIB))
    with file_store(root) as made:
        yield made


def wanted(
    origin: Store, version: str, *, generation: int = 1, desired: Any = pb.DESIRED_STATE_RUNNING
) -> pb.Workload:
    return pb.Workload(
        id=f"pre-{version}",
        kind=pb.WORKLOAD_KIND_FILES,
        generation=generation,
        desired=desired,
        prefetch=pb.PrefetchWorkload(
            model="toy", model_version_id=version, files=files(origin, version)
        ),
    )


@asynccontextmanager
async def driving(models: ModelCache) -> AsyncIterator[PrefetchDriver]:
    driver = PrefetchDriver(models, lambda: None)
    await driver.adopt()
    try:
        yield driver
    finally:
        await driver.close()


async def reaches(
    driver: PrefetchDriver, version: str, phase: Any, *, generation: int = 1
) -> pb.WorkloadStatus:
    def there() -> pb.WorkloadStatus | None:
        for one in driver.statuses():
            fits = (one.workload_id, one.phase) == (f"pre-{version}", phase)
            if fits and one.generation == generation:
                return one
        return None

    return await until(there)


async def test_files_are_brought_once_and_found_again(origin: Store, tmp_path: Path) -> None:
    models = ModelCache(tmp_path / "models")
    async with driving(models) as driver:
        for version in ("mv-a", "mv-b"):
            await driver.apply(wanted(origin, version))
        for version in ("mv-a", "mv-b"):
            await reaches(driver, version, pb.PHASE_SUCCEEDED)
        assert models.versions() == {"mv-a", "mv-b"}
        # An engine that starts finds them.
        path = tmp_path / "models" / "mv-a" / "weights"
        before = path.stat().st_mtime_ns
        await models.fetch("mv-a", files(origin, "mv-a"))
        assert path.stat().st_mtime_ns == before
        await driver.apply(wanted(origin, "mv-a", generation=2))
        await reaches(driver, "mv-a", pb.PHASE_SUCCEEDED, generation=2)
        assert path.stat().st_mtime_ns == before
        await driver.apply(wanted(origin, "mv-a", generation=3, desired=pb.DESIRED_STATE_DELETED))
        assert [one.workload_id for one in driver.statuses()] == ["pre-mv-b"]
        assert "mv-a" in models.versions(), "what was brought stays"
        with pytest.raises(ValueError, match="is not an identifier"):
            await driver.apply(pb.Workload(id="../x", desired=pb.DESIRED_STATE_RUNNING))


async def test_a_draft_comes_with_its_model(origin: Store, tmp_path: Path) -> None:
    models = ModelCache(tmp_path / "models")
    bad, good = (wanted(origin, "mv-a", generation=one) for one in (1, 2))
    for order in (bad, good):
        order.prefetch.draft_version_id = "mv-b"
        order.prefetch.draft_files.extend(files(origin, "mv-b"))
    bad.prefetch.draft_files[0].sha256 = bytes(32)
    async with driving(models) as driver:
        await driver.apply(bad)
        failed = await reaches(driver, "mv-a", pb.PHASE_FAILED)
        assert "does not match its listed SHA-256" in failed.message
        assert models.versions() == {"mv-a"}
        await driver.apply(good)
        await reaches(driver, "mv-a", pb.PHASE_SUCCEEDED, generation=2)
    assert models.versions() == {"mv-a", "mv-b"}


async def test_what_is_wanted_beside_it_meanwhile_is_brought_too(
    origin: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, more = ModelCache(tmp_path / "models"), wanted(origin, "mv-a", generation=2)
    more.prefetch.draft_version_id = "mv-b"
    more.prefetch.draft_files.extend(files(origin, "mv-b"))
    fetch = models.fetch
    async with driving(models) as driver:

        async def fetched(*what: Any, **how: Any) -> Path:
            found = await fetch(*what, **how)
            await driver.apply(more)
            return found

        monkeypatch.setattr(models, "fetch", fetched)
        await driver.apply(wanted(origin, "mv-a"))
        await reaches(driver, "mv-a", pb.PHASE_SUCCEEDED, generation=2)
    assert models.versions() == {"mv-a", "mv-b"}


async def test_one_that_failed_begins_anew_with_other_urls(origin: Store, tmp_path: Path) -> None:
    async with driving(ModelCache(tmp_path / "models")) as driver:
        bad = wanted(origin, "mv-a")
        bad.prefetch.files[0].url += "-none"
        await driver.apply(bad)
        failed = await reaches(driver, "mv-a", pb.PHASE_FAILED)
        assert failed.reason == "DownloadFailed"
        assert "HTTP 404" in failed.message
        await driver.apply(wanted(origin, "mv-a", generation=2))
        await reaches(driver, "mv-a", pb.PHASE_SUCCEEDED, generation=2)


async def test_one_that_ends_leaves_nothing_half(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        begun.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    slow = pb.Workload(id="pre-slow", generation=1, desired=pb.DESIRED_STATE_RUNNING)
    slow.prefetch.model_version_id = "mv-slow"
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    slow.prefetch.files.add(path="weights", url=url, bytes=9, sha256=bytes(32))
    models = ModelCache(tmp_path / "models")
    async with driving(models) as driver:
        await driver.apply(slow)
        await begun.wait()
        (status,) = driver.statuses()
        assert (status.phase, status.reason) == (pb.PHASE_STARTING, "Downloading")
        await driver.apply(
            pb.Workload(id="pre-slow", generation=2, desired=pb.DESIRED_STATE_DELETED)
        )
        assert driver.statuses() == []
        assert models.versions() == frozenset()
    server.close()


async def test_room_is_taken_from_what_nothing_uses(
    origin: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "models"
    models = ModelCache(folder)
    # Of a disk of 1000 KiB, 50 of which no prefetch takes, 200 are there for models.
    monkeypatch.setattr(subject, "disk_bytes", lambda _: 1000 * KIB)

    def free(_: Path) -> int:
        return 200 * KIB - held_bytes(folder)

    monkeypatch.setattr(subject, "free_bytes", free)
    async with driving(models) as driver:
        for version in ("mv-a", "mv-b"):
            await driver.apply(wanted(origin, version))
            await reaches(driver, version, pb.PHASE_SUCCEEDED)
        with models.using("mv-a"), models.using("mv-b"):
            await driver.apply(wanted(origin, "mv-c"))
            failed = await reaches(driver, "mv-c", pb.PHASE_FAILED)
        said = "The model's 64 KiB do not fit: 22 KiB are free, and models in use take 128 KiB."
        assert failed.message == said
        assert models.versions() == {"mv-a", "mv-b"}
        large = wanted(origin, "mv-c", generation=2)
        large.prefetch.files[0].bytes = 400 * KIB
        await driver.apply(large)
        await reaches(driver, "mv-c", pb.PHASE_FAILED, generation=2)
        assert models.versions() == {"mv-a", "mv-b"}, "nothing goes for what does not fit at all"
        os.utime(folder / "mv-b", (0, 0))
        await driver.apply(wanted(origin, "mv-c", generation=3))
        await reaches(driver, "mv-c", pb.PHASE_SUCCEEDED, generation=3)
        assert models.versions() == {"mv-a", "mv-c"}, "the one that was used longest ago"
        # An engine may have what a prefetch may not.
        await models.fetch("mv-b", files(origin, "mv-b"))
        assert models.versions() == {"mv-a", "mv-b", "mv-c"}
        used = models.using("mv-a"), models.using("mv-b"), models.using("mv-c")
        with used[0], used[1], used[2], pytest.raises(DownloadError, match="do not fit"):
            await models.fetch("mv-d", [*files(origin, "mv-a"), *files(origin, "mv-b")])
