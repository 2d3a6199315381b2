"""Guarantees of the sealed store only: what lies in the store, tampering, keys that are away."""

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from tests.contract.conftest import Subject, serving
from tests.contract.object_content import MIB, read, stream
from tests.support.keepers.object_keys import PROJECT, FixedKeys

from windlass.core.errors import FailedPrecondition, Unavailable
from windlass.core.objects import (
    FilesystemStore,
    ObjectDamaged,
    ObjectKey,
    ObjectStore,
    SealedStore,
    SealingKeyUnavailable,
)
from windlass.core.objects.http import ObjectRoutes, TransferBroken
from windlass.core.objects.sealing import opened
from windlass.core.objects.sealing.frames import HEADER_BYTES, MAGIC, SEALED_FRAME_BYTES

OWN, OTHER = f"files/{PROJECT}/file-1", "files/proj_other/file-1"
TEXT = b"my training data is nobody else's business. " * 4000


@dataclass
class Vault:
    """A store, the one that lies under it, and the keys of one project."""

    store: SealedStore
    under: ObjectStore
    keys: FixedKeys

    async def replace(self, content: bytes, key: str = OWN) -> None:
        await self.under.put(key, stream(content))


@pytest.fixture(params=["filesystem", "s3"])
def inner(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def vault(inner: Subject) -> AsyncIterator[Vault]:
    keys = FixedKeys(PROJECT)

    def made(url: str) -> SealedStore:
        return SealedStore(inner.store, keys, public_url=url, secret=b"s" * 32)

    async with serving(made) as store:
        assert isinstance(store, SealedStore)
        yield Vault(store, inner.store, keys)


async def test_only_what_is_the_project_s_is_sealed(vault: Vault) -> None:
    for key in (OWN, OTHER, "audit/org-1/1"):
        await vault.store.put(key, stream(TEXT))
        assert await read(vault.store, key) == TEXT
    lies = await read(vault.under, OWN)
    assert b"business" not in lies
    assert len(lies) > len(TEXT)
    for key in (OTHER, "audit/org-1/1"):
        assert await read(vault.under, key) == TEXT


async def test_what_was_there_before_is_read_as_it_is(vault: Vault) -> None:
    for before in (TEXT, b"", b"short"):
        await vault.replace(before)
        assert await read(vault.store, OWN) == before
        assert await read(vault.store, OWN, 3, 9) == before[3:9]
        found = await vault.store.head(OWN)
        assert found is not None
        assert found.bytes == len(before)
        async with httpx.AsyncClient() as http:
            answer = await http.get(await vault.store.presign_get(OWN, expires=60))
            assert (answer.status_code, answer.content) == (200, before)
    await vault.store.put(OWN, stream(TEXT))
    assert b"business" not in await read(vault.under, OWN)


@pytest.mark.parametrize("change", ["flip", "cut", "swap", "append", "header", "move"])
async def test_tampering_is_an_error_and_no_content(vault: Vault, change: str) -> None:
    await vault.store.put(OWN, stream(TEXT + TEXT))
    lies = await read(vault.under, OWN)
    first, second = (
        lies[at : at + SEALED_FRAME_BYTES]
        for at in (HEADER_BYTES, HEADER_BYTES + SEALED_FRAME_BYTES)
    )
    beginning, rest = lies[:HEADER_BYTES], lies[HEADER_BYTES + 2 * SEALED_FRAME_BYTES :]
    key = f"files/{PROJECT}/file-2" if change == "move" else OWN
    changed = {
        "flip": lies[:-1] + bytes([lies[-1] ^ 1]),
        "cut": lies[: HEADER_BYTES + 2 * SEALED_FRAME_BYTES],
        "swap": beginning + second + first + rest,
        "append": lies + b"x",
        "header": lies[: HEADER_BYTES - 1]
        + bytes([lies[HEADER_BYTES - 1] ^ 1])
        + lies[HEADER_BYTES:],
        "move": lies,
    }[change]
    await vault.replace(changed, key)
    with pytest.raises(ObjectDamaged) as caught:
        await read(vault.store, key)
    assert isinstance(caught.value, FailedPrecondition)
    assert caught.value.reason == "object_damaged"


async def test_a_damaged_object_is_a_409_of_its_url(vault: Vault) -> None:
    await vault.store.put(OWN, stream(TEXT))
    lies = bytearray(await read(vault.under, OWN))
    lies[HEADER_BYTES] ^= 1
    await vault.replace(bytes(lies))
    async with httpx.AsyncClient() as http:
        answer = await http.get(await vault.store.presign_get(OWN, expires=60))
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "object_damaged"


async def test_a_key_that_is_away_closes_its_project_and_no_other(vault: Vault) -> None:
    await vault.store.put(OWN, stream(TEXT))
    urls = [await vault.store.presign_get(OWN, expires=60)]
    vault.keys.away = True
    urls.append(await vault.store.presign_get(OWN, expires=60))
    put = await vault.store.presign_put(f"files/{PROJECT}/file-2", expires=60)
    for attempt in (read(vault.store, OWN), vault.store.put(OWN, stream(b"other"))):
        with pytest.raises(SealingKeyUnavailable) as caught:
            await attempt
        assert isinstance(caught.value, Unavailable)
        assert (caught.value.reason, "ekm_1" in caught.value.message) == (
            "external_key_unavailable",
            True,
        )
    async with httpx.AsyncClient() as http:
        for answer in [await http.get(url) for url in urls] + [await http.put(put, content=TEXT)]:
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "external_key_unavailable"
    assert await vault.under.head(f"files/{PROJECT}/file-2") is None
    # Sizes are known and what is left can be removed without any key.
    found = await vault.store.head(OWN)
    assert found is not None
    assert found.bytes == len(TEXT)
    await vault.store.put(OTHER, stream(TEXT))
    assert await read(vault.store, OTHER) == TEXT
    assert await vault.store.delete_prefix(f"files/{PROJECT}/") == 1


async def test_a_newer_key_seals_and_the_former_opens(vault: Vault) -> None:
    await vault.store.put(OWN, stream(TEXT))
    vault.keys.keys.append(ObjectKey("okey_2", b"n" * 32))
    assert await read(vault.store, OWN) == TEXT
    await vault.store.put(OWN, stream(TEXT))
    del vault.keys.keys[0]
    assert await read(vault.store, OWN) == TEXT


async def test_an_object_of_a_key_that_the_project_has_not_is_damaged(vault: Vault) -> None:
    await vault.store.put(OWN, stream(TEXT))
    vault.keys.keys[:] = [ObjectKey("okey_2", b"n" * 32)]
    with pytest.raises(ObjectDamaged):
        await read(vault.store, OWN)


async def test_urls_of_sealed_objects_lead_to_us_and_others_as_ever(vault: Vault) -> None:
    own = [
        await vault.store.presign_get(OWN, expires=60),
        await vault.store.presign_put(OWN, expires=60),
    ]
    for url in own:
        assert f"/objects/files/{PROJECT}/" in url
    is_s3 = not isinstance(vault.under, FilesystemStore)
    assert ("X-Amz-Signature" in await vault.store.presign_get(OTHER, expires=60)) is is_s3
    if isinstance(vault.under, FilesystemStore):
        await vault.store.put(OWN, stream(TEXT))
        # An agent beside the folder would copy what is sealed.
        assert vault.under.file(own[0]) is None
    content = os.urandom(3 * MIB + 5)
    async with httpx.AsyncClient() as http:
        url = await vault.store.presign_put(OWN, expires=60, bytes=len(content), sha256=b"\1" * 32)
        assert (await http.put(url, content=content)).status_code == 400
        assert (await http.put(own[1], content=content)).status_code == 200
        answer = await http.get(own[0], headers={"Range": "bytes=65530-131080"})
        assert (answer.status_code, answer.content) == (206, content[65530:131081])
        head = await http.head(own[0])
        assert head.headers["content-length"] == str(len(content))


async def test_listings_have_plain_sizes_of_both_forms(vault: Vault) -> None:
    await vault.replace(b"before", f"files/{PROJECT}/file-0")
    await vault.store.put(OWN, stream(TEXT))
    found = [(info.key, info.bytes) async for info in vault.store.list(f"files/{PROJECT}/")]
    assert found == [(f"files/{PROJECT}/file-0", 6), (OWN, len(TEXT))]


async def test_a_listing_goes_on_past_what_is_no_sealed_object(vault: Vault) -> None:
    await vault.store.put(OWN, stream(TEXT))
    lies, other = await read(vault.under, OWN), f"files/{PROJECT}/file-0"
    for cut in (lies[: HEADER_BYTES + 3], MAGIC + b"a\0b".ljust(64)):
        await vault.replace(cut, other)
        found = [(info.key, info.bytes) async for info in vault.store.list(f"files/{PROJECT}/")]
        assert found == [(other, len(cut)), (OWN, len(TEXT))]
        with pytest.raises(ObjectDamaged):
            await read(vault.store, other)


async def test_frames_that_go_while_they_are_read_are_no_end(vault: Vault) -> None:
    await vault.store.put(OWN, stream(TEXT + TEXT))
    found = await vault.store.open(OWN)
    lies = await read(vault.under, OWN)
    for frames in (2, 0):
        await vault.replace(lies[: HEADER_BYTES + frames * SEALED_FRAME_BYTES])
        with pytest.raises(ObjectDamaged):
            async for _ in found.read(0, found.size):
                pass


async def test_half_an_answer_is_followed_by_no_second_one(vault: Vault) -> None:
    await vault.store.put(OWN, stream(os.urandom(3 * MIB)))
    lies = await read(vault.under, OWN)
    await vault.replace(lies[:-1] + bytes([lies[-1] ^ 1]))
    url = httpx.URL(await vault.store.presign_get(OWN, expires=60))
    scope = {"method": "GET", "path": url.path, "query_string": url.query, "headers": []}
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return await asyncio.Future[dict[str, Any]]()

    async def send(message: Any) -> None:
        sent.append(message)

    with pytest.raises(TransferBroken):
        await ObjectRoutes(vault.store)(scope, receive, send)
    assert sent[0]["status"] == 200
    assert {message["type"] for message in sent[1:]} == {"http.response.body"}
    assert all(message["more_body"] for message in sent[1:])


async def test_no_range_is_an_error_of_ours(vault: Vault) -> None:
    await vault.store.put(OWN, stream(TEXT))
    url = await vault.store.presign_get(OWN, expires=60)
    async with httpx.AsyncClient() as http:
        for digits, status in ((18, 416), (5000, 200)):
            asked = {"Range": f"bytes={'9' * digits}-"}
            assert (await http.get(url, headers=asked)).status_code == status
        answer = await http.get(url, headers={"Range": f"bytes=2-{'9' * 18}"})
        assert (answer.status_code, answer.content) == (206, TEXT[2:])


async def test_urls_of_sealed_objects_end_with_the_keys_of_their_project(
    vault: Vault,
) -> None:
    other = f"files/{PROJECT}/file-2"
    await vault.store.put(other, stream(TEXT))
    read_from = await vault.store.presign_get(other, expires=60)
    write_to = await vault.store.presign_put(OWN, expires=60)
    vault.keys.project_id = "proj_of_nobody"
    async with httpx.AsyncClient() as http:
        for answer in (await http.get(read_from), await http.put(write_to, content=TEXT)):
            assert answer.status_code == 404
            assert answer.json()["error"]["code"] == "object_not_found"
    # Nothing lies there plain.
    assert await vault.under.head(OWN) is None


async def test_a_read_on_its_way_ends_with_its_key(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "CONFIRM_SECONDS", 0.0)
    await vault.store.put(OWN, stream(os.urandom(4 * MIB)))
    parts = vault.store.get(OWN)
    assert await anext(parts)
    vault.keys.away = True
    with pytest.raises(SealingKeyUnavailable):
        await anext(parts)


async def test_a_slow_reader_holds_little_more_than_what_it_is_sent(vault: Vault) -> None:
    await vault.store.put(OWN, stream(os.urandom(6 * MIB)))
    readers = [vault.store.get(OWN) for _ in range(8)]
    tracemalloc.start()
    try:
        parts = [[len(await anext(reader)) for reader in readers] for _ in range(3)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert min(map(min, parts)) >= MIB
    assert held < len(readers) * 3 * MIB
