"""Guarantees of the filesystem store only: private files, bound digests, space, crashes."""

import asyncio
import hashlib
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx
import pytest
from tests.contract.conftest import Subject
from tests.contract.object_content import MIB, read, repeated, stream
from tests.support.environments.required import lacking
from tests.support.waiting import until

from windlass.core.objects import FilesystemStore, InvalidKey, StorageFull, folder_walk


def _store(root: Path) -> FilesystemStore:
    return FilesystemStore(root, public_url="http://127.0.0.1", secret=b"s" * 32)


async def test_nobody_else_can_read(filesystem: Subject, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        await filesystem.store.put("a/b/c", stream(b"x"))
    finally:
        os.umask(old)
    for path in (tmp_path / "objects").rglob("*"):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


async def test_a_removal_that_was_broken_off_ends_with_the_next(
    filesystem: Subject, tmp_path: Path
) -> None:
    for number in range(6):
        await filesystem.store.put(f"a/{number % 2}/{number}", stream(b"xy"))
    begun = folder_walk.removed(tmp_path / "objects" / "content" / "a")
    assert len(list(islice(begun, 4))) == 4
    assert await filesystem.store.count("a/") == (2, 4)
    assert await filesystem.leftovers() == []
    assert await filesystem.store.delete_prefix("a/") == 2
    assert list((tmp_path / "objects" / "content").iterdir()) == []
    assert list(begun) == []


async def test_a_put_of_a_wrong_digest_leaves_nothing(filesystem: Subject) -> None:
    content = os.urandom(3 * MIB)
    digest = hashlib.sha256(content).digest()
    url = await filesystem.store.presign_put("d", expires=60, bytes=len(content), sha256=digest)
    async with httpx.AsyncClient() as client:
        answer = await client.put(url, content=content[:-1] + b"?")
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "object_mismatch"
        assert (await client.put(url, content=stream(content[:-1]))).status_code == 400
        assert (await client.put(url, content=stream(content + b"?"))).status_code == 400
        assert await filesystem.store.head("d") is None
        assert await filesystem.leftovers() == []
        assert (await client.put(url, content=content)).status_code == 200
    assert await filesystem.store.digest("d") == digest


async def test_an_upload_that_is_cut_leaves_nothing(filesystem: Subject) -> None:
    url = httpx.URL(await filesystem.store.presign_put("cut", expires=60))
    _, writer = await asyncio.open_connection(url.host, url.port)
    head = f"PUT {url.raw_path.decode()} HTTP/1.1\r\nHost: x\r\nContent-Length: {8 * MIB}\r\n\r\n"
    writer.write(head.encode() + os.urandom(3 * MIB))
    await writer.drain()

    async def begun() -> bool:
        return await filesystem.leftovers() != []

    async def gone() -> bool:
        return await filesystem.leftovers() == []

    await until(begun)
    writer.close()
    await until(gone)
    assert await filesystem.store.head("cut") is None


@pytest.mark.parametrize("change", ["bytes=9", "sha256=00", "expires=99999999999", "method=GET"])
async def test_every_part_of_a_url_is_signed(filesystem: Subject, change: str) -> None:
    url = await filesystem.store.presign_put("k", expires=60, bytes=5, sha256=b"\1" * 32)
    name = change.split("=")[0]
    query = [
        change if part.startswith(f"{name}=") else part for part in url.split("?")[1].split("&")
    ]
    async with httpx.AsyncClient() as client:
        for text in ("&".join(query), "&".join([*query[:-1], change, query[-1]]), ""):
            answer = await client.put(f"{url.split('?')[0]}?{text}", content=b"hello")
            assert answer.status_code == 403


@pytest.mark.parametrize(
    ("header", "status", "part"),
    [
        ("bytes=2-4", 206, slice(2, 5)),
        ("bytes=7-", 206, slice(7, None)),
        ("bytes=-3", 206, slice(-3, None)),
        ("bytes=-99", 206, slice(0, None)),
        ("bytes=5-99", 206, slice(5, None)),
        ("bytes=10-", 416, slice(0, 0)),
        ("bytes=4-2", 416, slice(0, 0)),
        ("bytes=1-2,4-5", 200, slice(0, None)),
        ("lines=1-2", 200, slice(0, None)),
        ("bytes=-", 200, slice(0, None)),
    ],
)
async def test_http_ranges(filesystem: Subject, header: str, status: int, part: slice) -> None:
    await filesystem.store.put("r", stream(b"0123456789"))
    async with httpx.AsyncClient() as client:
        url = await filesystem.store.presign_get("r", expires=60)
        answer = await client.get(url, headers={"Range": header})
        assert (answer.status_code, answer.content) == (status, b"0123456789"[part])
        head = await client.head(url)
        assert (head.headers["content-length"], head.content) == ("10", b"")


async def test_a_missing_object_is_404(filesystem: Subject) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.get(await filesystem.store.presign_get("none", expires=60))
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "object_not_found"


async def test_a_key_below_another_is_refused(filesystem: Subject) -> None:
    await filesystem.store.put("a/b", stream(b"x"))
    for key in ("a/b/c", "a"):
        with pytest.raises(InvalidKey):
            await filesystem.store.put(key, stream(b"y"))
    assert await read(filesystem.store, "a/b") == b"x"
    assert await filesystem.leftovers() == []


async def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    script = """
        import asyncio, sys
        from pathlib import Path
        from windlass.core.objects import FilesystemStore

        async def endless():
            yield b"x" * 5_000_000
            print("begun", flush=True)
            await asyncio.Event().wait()

        store = FilesystemStore(Path(sys.argv[1]), public_url="http://x", secret=b"s" * 32)
        asyncio.run(store.put("key", endless()))
    """
    killed = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == b"begun\n"
    (left,) = (tmp_path / "incoming").iterdir()
    os.utime(left, (0, 0))
    await _store(tmp_path).close()
    assert left.exists(), "a live process writes it"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    os.utime(left, (0, 0))
    await _store(tmp_path).close()
    assert not left.exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        lacking("a small disk needs the right to mount")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


async def test_a_full_disk(small_disk: Path) -> None:
    store = _store(small_disk / "objects")
    await store.put("before", stream(b"x" * MIB))
    with pytest.raises(StorageFull):
        await store.put("key", repeated(os.urandom(MIB), 8))
    assert await store.head("key") is None
    assert list((small_disk / "objects" / "incoming").iterdir()) == []
    await store.put("after", stream(b"x" * MIB))
    await store.close()


async def test_a_url_of_its_own_names_a_file(tmp_path: Path) -> None:
    store = _store(tmp_path / "objects")
    await store.put("a/b,c=1/d~@e", stream(b"x"))
    good = await store.presign_get("a/b,c=1/d~@e", expires=60, filename="ü/ä.bin")
    found = store.file(good)
    assert found is not None
    assert found.read_bytes() == b"x"
    assert found.is_relative_to(tmp_path / "objects")
    elsewhere = FilesystemStore(tmp_path / "other", public_url="http://127.0.0.1", secret=b"s" * 32)
    strange = FilesystemStore(tmp_path / "objects", public_url="http://127.0.0.1", secret=b"t" * 32)
    assert elsewhere.file(good) is None
    assert strange.file(good) is None
    for url in (
        good.replace("/a/", "/A/"),
        good.replace("/objects/a/", "/objects/a/../a/"),
        good.partition("?")[0],
        "",
        "http://[",
        "http://127.0.0.1/objects/..%2f..%2fetc/passwd?signature=",
        await store.presign_get("a/b,c=1/d~@e", expires=-1),
        # Its holder may have lost the key.
        await store.presign_get("a/b,c=1/d~@e", expires=60, holder="key-1"),
        await store.presign_get("a", expires=60),
        await store.presign_get("a/gone", expires=60),
        await store.presign_put("a/b,c=1/d~@e", expires=60),
    ):
        assert store.file(url) is None, url
