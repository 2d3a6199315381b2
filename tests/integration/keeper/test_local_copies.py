"""Versions whose store is a folder of the machine: nobody listens where their URLs lead."""

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import pytest

from windlass.api.models.v1 import models_pb2
from windlass.core.objects import FilesystemStore
from windlass_agent.download import DownloadError, ModelCache, local_copy

CONTENT = {"config.json": b"{}", "weights/model.bin": os.urandom(3 * 2**20 + 7), "empty": b""}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FilesystemStore]:
    store = FilesystemStore(tmp_path / "objects", public_url="http://127.0.0.1:1", secret=b"s" * 32)
    for path, content in CONTENT.items():
        await store.put(f"versions/{path}", _chunks(content))
    yield store
    await store.close()


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def files(store: FilesystemStore) -> list[models_pb2.FileUrl]:
    return [
        models_pb2.FileUrl(
            path=path,
            url=await store.presign_get(f"versions/{path}", expires=60),
            bytes=len(content),
            sha256=hashlib.sha256(content).digest(),
        )
        for path, content in CONTENT.items()
    ]


def cache(folder: Path, store: FilesystemStore) -> ModelCache:
    return ModelCache(folder / "models", patience_seconds=0.1, local=store.file)


async def test_files_are_copied_without_a_connection(
    store: FilesystemStore, tmp_path: Path
) -> None:
    models = cache(tmp_path, store)
    folder = await models.fetch("mv-a", await files(store))
    for path, content in CONTENT.items():
        assert (folder / path).read_bytes() == content
        # What an engine might do to its files stays there.
        assert not (folder / path).samefile(tmp_path / "objects" / "content" / "versions" / path)


async def test_slices_and_what_is_copied_in_them(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_copy, "_SLICE_BYTES", 2**20 - 1)
    folder = await cache(tmp_path, store).fetch("mv-a", await files(store))
    assert (folder / "weights/model.bin").read_bytes() == CONTENT["weights/model.bin"]


@pytest.mark.parametrize("damage", ["other bytes", "shorter", "gone"])
async def test_what_is_not_as_promised_is_asked_of_the_store(
    store: FilesystemStore, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "objects" / "content" / "versions" / "weights" / "model.bin"
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-1] + (b"" if damage == "shorter" else b"?"))
    models = cache(tmp_path, store)
    with pytest.raises(DownloadError, match=r"weights/model.bin could not be downloaded"):
        await models.fetch("mv-a", await files(store))
    assert models.versions() == frozenset()


async def test_a_copy_that_the_kernel_refuses_is_asked_of_the_store(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "copy_file_range", refuses)
    with pytest.raises(DownloadError, match="could not be downloaded"):
        await cache(tmp_path, store).fetch("mv-a", await files(store))


async def test_a_full_disk_says_so(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(DownloadError, match="no space is left on the disk"):
        await cache(tmp_path, store).fetch("mv-a", await files(store))


async def test_who_gives_up_leaves_no_half_file(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, begun, go_on = os.copy_file_range, threading.Event(), threading.Event()

    def slow(*given: int) -> int:
        begun.set()
        go_on.wait(60)
        return copy(*given)

    monkeypatch.setattr(os, "copy_file_range", slow)
    models = cache(tmp_path, store)
    fetching = asyncio.create_task(models.fetch("mv-a", await files(store)))
    await asyncio.to_thread(begun.wait, 60)
    fetching.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert models.versions() == frozenset()
    assert not [*(tmp_path / "models").rglob("*.part/**/.*.part")]
    monkeypatch.undo()
    assert await models.fetch("mv-a", await files(store))


async def test_a_thread_that_is_late_spoils_no_other_copy(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would cut off what the other has copied and compared already."""
    opens, copy = local_copy._private, os.copy_file_range
    late, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def opens_late(path: Path) -> FileIO:
        if late.is_set():
            return opens(path)
        late.set()
        go_on.wait(60)
        try:
            return opens(path)
        finally:
            ended.set()

    def copy_beside(*given: int) -> int:
        if given[3]:
            go_on.set()
            ended.wait(10)
        return copy(*given)

    monkeypatch.setattr(local_copy, "_private", opens_late)
    monkeypatch.setattr(os, "copy_file_range", copy_beside)
    monkeypatch.setattr(local_copy, "_SLICE_BYTES", 2**20)
    models = cache(tmp_path, store)
    weights = [file for file in await files(store) if file.path == "weights/model.bin"]
    given_up = asyncio.create_task(models.fetch("mv-a", weights))
    await asyncio.to_thread(late.wait, 10)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    folder = await models.fetch("mv-a", weights)
    assert ended.is_set()
    assert (folder / "weights/model.bin").read_bytes() == CONTENT["weights/model.bin"]


async def test_what_else_needs_a_thread_does_not_wait_for_the_copy(
    store: FilesystemStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of hosts are looked up by the same threads as models of gigabytes are copied."""
    copy, begun, go_on = os.copy_file_range, threading.Event(), threading.Event()
    copies = list[int]()

    def counted(*given: int) -> int:
        copies.append(given[3])
        begun.set()
        go_on.wait(60)
        return copy(*given)

    monkeypatch.setattr(os, "copy_file_range", counted)
    monkeypatch.setattr(local_copy, "_SLICE_BYTES", 2**16)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    path = tmp_path / "objects" / "content" / "versions" / "weights" / "model.bin"
    weights = next(file for file in await files(store) if file.path == "weights/model.bin")
    copying = asyncio.create_task(local_copy.copied(path, weights, tmp_path / "copy"))
    with ThreadPoolExecutor(1) as other:
        await loop.run_in_executor(other, begun.wait, 60)
    looked_up = asyncio.create_task(asyncio.to_thread(lambda: len(copies)))
    await asyncio.sleep(0)
    go_on.set()
    assert await looked_up == 1
    assert await copying
