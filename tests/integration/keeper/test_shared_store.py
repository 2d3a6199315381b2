"""A store of weights that several pods share: fetched once, compared when found, never pulled away.

Pods are objects of this process, and where one is killed, a process; the volume is a folder.
"""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents.file_store import Store, file_store, files
from tests.support.waiting import until

from windlass_agent.download import DownloadError, SharedStore, intact
from windlass_agent.download import shared_store as subject
from windlass_agent.download.transfer import fetch_files

KIB = 1024
# A pod's keeper that fetches, until it is killed.
_FETCH = """
import asyncio, sys
from pathlib import Path
from windlass.api.models.v1 import models_pb2
from windlass_agent.download import SharedStore

async def main(folder, url):
    file = models_pb2.FileUrl(path="weights", url=url, bytes=9, sha256=bytes(32))
    store = SharedStore(Path(folder))
    async with store.open():
        await store.fetch("mv-slow", [file])

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    root = tmp_path_factory.mktemp("origin")
    for version in ("mv-a", "mv-b", "mv-c"):
        (root / version).mkdir()
        (root / version / "config.json").write_bytes(version.encode() * 10)
        (root / version / "weights").write_bytes(os.urandom(64 * KIB))
    with file_store(root) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".marks"}


def same(there: Path, origin: Store, version: str) -> bool:
    told = {path.name: path.read_bytes() for path in (origin[0] / version).iterdir()}
    return {path.name: path.read_bytes() for path in there.iterdir()} == told


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that something was downloaded into."""
    seen: list[Path] = []

    async def counted(wanted: Any, into: Path, *more: Any) -> None:
        seen.append(into)
        await fetch_files(wanted, into, *more)

    monkeypatch.setattr(subject, "fetch_files", counted)
    return seen


async def test_pods_that_start_together_fetch_once(
    origin: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watched(monkeypatch)
    monkeypatch.setattr(subject, "LOOK_SECONDS", 0.02)
    pods = [SharedStore(folder) for _ in range(4)]
    async with AsyncExitStack() as stack:
        for pod in pods:
            await stack.enter_async_context(pod.open())
        wanted = files(origin, "mv-a")
        found = await asyncio.gather(*(pod.fetch("mv-a", wanted) for pod in pods))
        assert set(found) == {folder / "mv-a"}
        assert same(found[0], origin, "mv-a")
        assert len(seen) == 1
        assert left(folder) == {"mv-a"}
        assert len(list((folder / ".marks").iterdir())) == len(pods)
    assert not list((folder / ".marks").iterdir())


async def test_whoever_loses_the_race_keeps_what_is_there(
    origin: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two believe that they have the lease, as after a long pause of one."""
    monkeypatch.setattr(SharedStore, "_lease", lambda *_: True)
    one, two = SharedStore(folder), SharedStore(folder)
    async with one.open(), two.open():
        wanted = files(origin, "mv-a")
        await asyncio.gather(one.fetch("mv-a", wanted), two.fetch("mv-a", wanted))
    assert same(folder / "mv-a", origin, "mv-a")
    assert left(folder) == {"mv-a"}


async def test_a_pod_that_is_killed_keeps_nobody_waiting(
    origin: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        held.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    command = [sys.executable, "-c", _FETCH, str(folder), url]
    process = subprocess.Popen(command)
    await asyncio.wait_for(held.wait(), 60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.close()
    for path in (*(folder / ".marks").iterdir(), *folder.glob(".*.part")):
        os.utime(path, (0, 0))
    (folder / ".marks" / "mv-slow.lease").rename(folder / ".marks" / "mv-a.lease")
    monkeypatch.setattr(subject, "LOOK_SECONDS", 0.01)
    pod = SharedStore(folder)
    async with pod.open():
        # The lease of the dead one is broken, and what it left goes.
        await pod.fetch("mv-a", files(origin, "mv-a"))
        assert left(folder) == {"mv-a"}
        assert len(list((folder / ".marks").iterdir())) == 1


@pytest.mark.parametrize("change", ["content", "size", "more", "link"])
async def test_what_was_changed_is_fetched_anew(
    origin: Store, folder: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = SharedStore(folder), SharedStore(folder)
    wanted = files(origin, "mv-a")
    async with second.open():
        async with first.open():
            there = await first.fetch("mv-a", wanted)
        config = there / "config.json"
        match change:
            case "content":
                config.write_bytes(b"x" * config.stat().st_size)
            case "size":
                config.write_bytes(b"")
            case "more":
                (there / "modeling.py").write_text("print()")
            case "link":
                config.rename(folder / ".elsewhere")
                config.symlink_to(folder / ".elsewhere")
        seen = watched(monkeypatch)
        assert same(await second.fetch("mv-a", wanted), origin, "mv-a")
        assert len(seen) == 1


async def test_what_differs_stays_for_whoever_uses_it(
    origin: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = SharedStore(folder), SharedStore(folder), SharedStore(folder)
    wanted = files(origin, "mv-a")
    async with second.open():
        async with first.open(), third.open():
            config = await first.fetch("mv-a", wanted) / "config.json"
            config.write_bytes(b"x")
            with pytest.raises(DownloadError, match=r"differ from its list, and other engines use"):
                await second.fetch("mv-a", wanted)
            assert config.read_bytes() == b"x"
            (mark,) = (folder / ".marks").iterdir()
            assert mark.name.endswith(first._holder), "who has nothing holds nothing"
        # Whoever only looks for it keeps nobody from bringing it anew.
        (folder / ".marks" / f"mv-a.{third._holder}").touch()
        assert same(await second.fetch("mv-a", wanted), origin, "mv-a")


@pytest.mark.parametrize("call", ["lstat", "open"])
async def test_what_cannot_be_read_stays(
    origin: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    first, second = SharedStore(folder), SharedStore(folder)
    wanted = files(origin, "mv-a")
    async with second.open():
        async with first.open():
            there = await first.fetch("mv-a", wanted)
        before = there.stat().st_ino
        seen, whole = watched(monkeypatch), getattr(Path, call)

        def stale(path: Path, *more: Any) -> Any:
            if path.parent == there:
                raise OSError(errno.ESTALE, "Stale file handle")
            return whole(path, *more)

        with monkeypatch.context() as patch:
            patch.setattr(Path, call, stale)
            with pytest.raises(DownloadError, match="Stale file handle"):
                await second.fetch("mv-a", wanted)
        assert await second.fetch("mv-a", wanted) == there
        assert (there.stat().st_ino, seen) == (before, [])


async def test_what_was_put_aside_goes_once_nobody_uses_it(origin: Store, folder: Path) -> None:
    first, second = SharedStore(folder), SharedStore(folder)
    async with second.open(), first.open():
        await first.fetch("mv-a", files(origin, "mv-a"))
        aside = first._put_aside(folder / "mv-a")
        assert aside is not None
        past = time.time() + 60
        os.utime(aside, (past, past))
        second._sweep()
        assert aside.exists()
        # Those that came since use another one.
        os.utime(aside, (past - 120, past - 120))
        second._sweep()
        assert not aside.exists()


async def test_the_largest_files_are_compared_by_size_beyond_a_bound(
    origin: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intact, "CHECKED_BYTES", KIB)
    pod, wanted = SharedStore(folder), files(origin, "mv-a")
    async with pod.open():
        there = await pod.fetch("mv-a", wanted)
        (there / "weights").write_bytes(bytes(64 * KIB))
        await pod.fetch("mv-a", wanted)
        assert (there / "weights").read_bytes() == bytes(64 * KIB)
        (there / "config.json").write_bytes(b"x" * 40)
        assert same(await pod.fetch("mv-a", wanted), origin, "mv-a")


async def test_only_what_nobody_holds_gives_way_the_oldest_first(
    origin: Store, folder: Path
) -> None:
    most = 140 * KIB
    first, second, third = (SharedStore(folder, most=most) for _ in range(3))
    async with first.open(), third.open():
        async with second.open():
            await first.fetch("mv-a", files(origin, "mv-a"))
            await second.fetch("mv-b", files(origin, "mv-b"))
            os.utime(folder / "mv-a", (0, 0))
            with pytest.raises(DownloadError) as refused:
                await third.fetch("mv-c", files(origin, "mv-c"))
            message = "The model's 64 KiB do not fit: 11.9 KiB are free, and models in use take 128"
            assert str(refused.value).startswith(message)
            assert left(folder) == {"mv-a", "mv-b"}
        too_much = [*files(origin, "mv-c"), *files(origin, "mv-b")]
        too_much[-1].path = "more"
        with pytest.raises(DownloadError, match=r"75.9 KiB are free, and models in use take 64"):
            await third.fetch("mv-d", too_much)
        assert left(folder) == {"mv-a", "mv-b"}, "nothing goes for what does not fit at all"
        await third.fetch("mv-c", files(origin, "mv-c"))
        assert left(folder) == {"mv-a", "mv-c"}
        # Of a pod that is no more.
        for mark in (folder / ".marks").glob("mv-a.*"):
            past = time.time() - 2 * subject.STALE_SECONDS
            os.utime(mark, (past, past))
        await third.fetch("mv-b", files(origin, "mv-b"))
        assert left(folder) == {"mv-b", "mv-c"}


async def test_a_draft_takes_no_room_from_the_model_that_it_guesses_for(
    origin: Store, folder: Path
) -> None:
    pod = SharedStore(folder, most=100 * KIB)
    async with pod.open():
        await pod.fetch("mv-a", files(origin, "mv-a"))
        with pytest.raises(DownloadError, match=r"do not fit: .* models in use take 64"):
            await pod.fetch("mv-b", files(origin, "mv-b"))
        assert left(folder) == {"mv-a"}


async def test_what_is_found_while_it_goes_stays(
    origin: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = SharedStore(folder, most=100 * KIB), SharedStore(folder)
    put_aside = SharedStore._put_aside
    async with one.open(), other.open():
        async with SharedStore(folder).open():
            await SharedStore(folder).fetch("mv-a", files(origin, "mv-a"))
        for mark in (folder / ".marks").glob("mv-a.*"):
            mark.unlink()

        def between(self: SharedStore, target: Path) -> Path | None:
            other._mark(target.name).touch()
            return put_aside(self, target)

        monkeypatch.setattr(SharedStore, "_put_aside", between)
        with pytest.raises(DownloadError):
            await one.fetch("mv-b", files(origin, "mv-b"))
        assert same(folder / "mv-a", origin, "mv-a")
        assert left(folder) == {"mv-a"}


async def test_a_full_disk_is_told_in_numbers(
    origin: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "free_bytes", lambda _: 3 * KIB)
    pod = SharedStore(folder)
    async with pod.open():
        with pytest.raises(DownloadError, match=r"64 KiB do not fit: 3 KiB are free, and models"):
            await pod.fetch("mv-a", files(origin, "mv-a"))
        assert left(folder) == set()


async def test_a_volume_may_map_owners(
    origin: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS with all_squash does, whose folders belong to a user that the pod is not."""

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "getuid", lambda: 10_001)
    monkeypatch.setattr(Path, "chmod", refuse)
    pod = SharedStore(folder)
    async with pod.open():
        assert same(await pod.fetch("mv-a", files(origin, "mv-a")), origin, "mv-a")


async def test_marks_are_renewed_for_as_long_as_a_pod_lives(
    origin: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "BEAT_SECONDS", 0.01)
    pod = SharedStore(folder)
    async with pod.open():
        await pod.fetch("mv-a", files(origin, "mv-a"))
        (mark,) = (folder / ".marks").glob("mv-a.*")
        os.utime(mark, (0, 0))
        await until(lambda: mark.stat().st_mtime > 0)
