"""Contract of every object store, run against a folder and against a real S3 server."""

import asyncio
import hashlib
import os
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from tests.contract.conftest import Subject
from tests.contract.object_content import MIB, keys, read, repeated, stream
from tests.support.waiting import until

from windlass.core.objects import (
    InvalidKey,
    ObjectMismatch,
    ObjectNotFound,
    ObjectTooLarge,
    validate_key,
)

ESCAPES = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../a",
    "a/../../b",
    "a/./b",
    "a//b",
    "a/",
    "a\\b",
    "a\0b",
    "a\nb",
    "a b",
    "a%2f..%2fb",
    "é",
    "x" * 201,
    "/".join(["x" * 100] * 9),
]


async def test_put_then_read(subject: Subject) -> None:
    content = os.urandom(3 * MIB + 17)
    stored = await subject.store.put("org/files/a.jsonl", stream(content))
    assert (stored.key, stored.bytes) == ("org/files/a.jsonl", len(content))
    assert stored.sha256 == hashlib.sha256(content).digest()
    assert await read(subject.store, "org/files/a.jsonl") == content
    assert await subject.store.digest("org/files/a.jsonl") == stored.sha256
    found = await subject.store.head("org/files/a.jsonl")
    assert found is not None
    assert (found.key, found.bytes) == ("org/files/a.jsonl", len(content))
    assert abs(datetime.now(UTC) - found.modified_at) < timedelta(minutes=1)
    assert await subject.leftovers() == []


async def test_an_object_of_many_parts_in_bounded_memory(subject: Subject) -> None:
    chunk, times = os.urandom(MIB), 160
    tracemalloc.start()
    try:
        stored = await subject.store.put("large", repeated(chunk, times))
        whole = hashlib.sha256()
        async for part in subject.store.get("large"):
            whole.update(part)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stored.bytes == times * MIB
    assert stored.sha256 == whole.digest()
    assert peak < 64 * MIB


@pytest.mark.parametrize("size", [0, 1, 8 * MIB, 8 * MIB + 1, 30 * MIB])
async def test_sizes_at_the_edges(subject: Subject, size: int) -> None:
    content = os.urandom(size)
    stored = await subject.store.put("edge", stream(content, step=300_000))
    assert stored.bytes == size
    assert await read(subject.store, "edge") == content


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 1), (5, 10), (2 * MIB, None), (0, 0), (7, 7), (9, 4), (MIB, 99 * MIB), (99 * MIB, None)],
)
async def test_ranges(subject: Subject, start: int, end: int | None) -> None:
    content = os.urandom(2 * MIB + 5)
    await subject.store.put("ranged", stream(content))
    assert await read(subject.store, "ranged", start, end) == content[start:end]


async def test_chunks_are_large(subject: Subject) -> None:
    await subject.store.put("chunks", stream(os.urandom(4 * MIB)))
    sizes = [len(chunk) async for chunk in subject.store.get("chunks")]
    assert min(sizes[:-1]) >= 256 * 1024


async def test_what_is_missing(subject: Subject) -> None:
    assert await subject.store.head("no/such") is None
    with pytest.raises(ObjectNotFound):
        await read(subject.store, "no/such")
    with pytest.raises(ObjectNotFound):
        await read(subject.store, "no/such", 3, 3)
    with pytest.raises(ObjectNotFound):
        await subject.store.digest("no/such")
    await subject.store.delete("no/such")
    assert await subject.store.delete_prefix("no/") == 0
    assert await subject.store.count("no/") == (0, 0)
    assert await keys(subject.store, "no/") == []


async def test_delete(subject: Subject) -> None:
    for key in ("a/1", "a/b/2", "a/b/c/3", "ab/4"):
        await subject.store.put(key, stream(b"x"))
    await subject.store.delete("a/1")
    await subject.store.delete("a/1")
    assert await keys(subject.store) == ["a/b/2", "a/b/c/3", "ab/4"]
    assert await subject.store.count("a/") == (2, 2 * subject.taken(1))
    assert await subject.store.delete_prefix("a/") == 2
    assert await keys(subject.store) == ["ab/4"]
    await subject.store.put("a/b/2", stream(b"again"))
    assert await read(subject.store, "a/b/2") == b"again"


async def test_listing_is_complete_and_in_order_beyond_a_page(subject: Subject) -> None:
    wanted = [f"many/{number:04}" for number in range(subject.pageful)]
    room = asyncio.Semaphore(12)

    async def put(key: str) -> None:
        async with room:
            await subject.store.put(key, stream(b"x"))

    async with asyncio.TaskGroup() as group:
        for key in wanted:
            group.create_task(put(key))
    assert await keys(subject.store, "many/") == wanted
    taken = len(wanted) * subject.taken(1)
    assert await subject.store.count("many/") == (len(wanted), taken)
    assert await subject.store.delete_prefix("many/") == len(wanted)


async def test_order_is_that_of_whole_keys(subject: Subject) -> None:
    for key in ("a/b", "a-b", "a.b", "a0", "a/b-c/d", "a/b.c"):
        await subject.store.put(key, stream(b"x"))
    expected = ["a-b", "a.b", "a/b", "a/b-c/d", "a/b.c", "a0"]
    assert await keys(subject.store) == expected


async def test_two_puts_of_one_key_leave_one_whole_object(subject: Subject) -> None:
    first, second = os.urandom(20 * MIB), os.urandom(19 * MIB)
    await asyncio.gather(
        subject.store.put("same", stream(first)), subject.store.put("same", stream(second))
    )
    assert await read(subject.store, "same") in (first, second)
    assert await subject.leftovers() == []


async def test_a_cancelled_put_leaves_nothing(subject: Subject) -> None:
    reached = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        async for chunk in repeated(os.urandom(MIB), 20):
            yield chunk
        reached.set()
        await asyncio.Event().wait()

    putting = asyncio.create_task(subject.store.put("cancelled", endless()))
    await reached.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    await _nothing_of(subject, "cancelled")


async def test_a_stream_that_breaks_leaves_what_was_there(subject: Subject) -> None:
    async def broken() -> AsyncIterator[bytes]:
        async for chunk in repeated(os.urandom(MIB), 20):
            yield chunk
        raise ConnectionResetError

    await subject.store.put("kept", stream(b"before"))
    with pytest.raises(ConnectionResetError):
        await subject.store.put("kept", broken())
    assert await read(subject.store, "kept") == b"before"
    assert await subject.leftovers() == []


async def test_too_much_is_refused_before_it_has_all_come(subject: Subject) -> None:
    pulled = 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal pulled
        async for chunk in repeated(os.urandom(MIB), 40):
            pulled += 1
            yield chunk

    with pytest.raises(ObjectTooLarge):
        await subject.store.put("big", counted(), max_bytes=20 * MIB)
    assert pulled == 21
    await _nothing_of(subject, "big")
    assert (await subject.store.put("big", repeated(b"x", 20), max_bytes=20)).bytes == 20


@pytest.mark.parametrize("announced", [{"bytes": 4}, {"bytes": 6}, {"sha256": b"\0" * 32}])
async def test_content_that_is_not_the_announced(
    subject: Subject, announced: dict[str, Any]
) -> None:
    with pytest.raises(ObjectMismatch):
        await subject.store.put("other", stream(b"hello"), **announced)
    await _nothing_of(subject, "other")
    digest = hashlib.sha256(b"hello").digest()
    await subject.store.put("other", stream(b"hello"), bytes=5, sha256=digest)


@pytest.mark.parametrize("key", ESCAPES)
async def test_keys_that_would_escape(subject: Subject, key: str) -> None:
    store = subject.store
    with pytest.raises(InvalidKey):
        validate_key(key)
    with pytest.raises(InvalidKey):
        await store.put(key, stream(b"x"))
    for operation in (store.head, store.delete, store.digest, lambda k: read(store, k)):
        with pytest.raises(InvalidKey):
            await operation(key)
    for presign in (store.presign_get, store.presign_put):
        with pytest.raises(InvalidKey):
            await presign(key, expires=60)


@pytest.mark.parametrize("prefix", ["", "a", "/", "../", "a/../", "a//"])
async def test_prefixes_are_whole_folders(subject: Subject, prefix: str) -> None:
    for operation in (subject.store.delete_prefix, subject.store.count):
        with pytest.raises(InvalidKey):
            await operation(prefix)


async def test_presigned_urls(subject: Subject) -> None:
    content = os.urandom(MIB)
    async with httpx.AsyncClient() as client:
        url = await subject.store.presign_put("signed/up.bin", expires=60, bytes=len(content))
        assert (await client.put(url, content=content)).status_code == 200
        url = await subject.store.presign_get("signed/up.bin", expires=60, filename='a "b" é.bin')
        answer = await client.get(url)
        assert answer.content == content
        assert "a%20%22b%22%20%C3%A9.bin" in answer.headers["content-disposition"]
        part = await client.get(url, headers={"Range": "bytes=10-19"})
        assert (part.status_code, part.content) == (206, content[10:20])
        assert part.headers["content-range"] == f"bytes 10-19/{MIB}"


async def test_presigned_urls_permit_nothing_else(subject: Subject) -> None:
    store = subject.store
    await store.put("mine", stream(b"x"))
    await store.put("other", stream(b"secret"))
    get = await store.presign_get("mine", expires=60)
    put = await store.presign_put("mine", expires=60, bytes=5)
    async with httpx.AsyncClient() as client:
        assert (await client.get(get.replace("/mine", "/other"))).status_code == 403
        assert (await client.get(get[:-4] + "0000")).status_code == 403
        assert (await client.get(get.split("?")[0])).status_code in (400, 403)
        assert (await client.put(get, content=b"y")).status_code == 403
        assert (await client.delete(get)).status_code == 403
        assert (await client.get(put)).status_code == 403
        assert (await client.put(put, content=b"longer")).status_code in (400, 403)
    assert await read(store, "mine") == b"x"


async def test_presigned_urls_expire(subject: Subject) -> None:
    await subject.store.put("brief", stream(b"x"))
    url = await subject.store.presign_get("brief", expires=1)
    async with httpx.AsyncClient() as client:

        async def refused() -> bool:
            return (await client.get(url)).status_code == 403

        await until(refused)


async def test_check(subject: Subject) -> None:
    await subject.store.check()
    assert await keys(subject.store) == []


async def _nothing_of(subject: Subject, key: str) -> None:
    async def clean() -> bool:
        return await subject.leftovers() == []

    await until(clean)
    assert await subject.store.head(key) is None
