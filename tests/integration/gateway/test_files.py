"""Files through the front door with openai-python and with raw forms."""

import asyncio
import contextlib
import gzip
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.support.services.front import Front, running_front
from tests.support.waiting import until

CHAT = b'{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}\n' * 20


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(
        database_url, tmp_path / "data", files={"max_bytes": 4 * 2**20}
    ) as front:
        yield front


async def stored(front: Front) -> list[str]:
    return [info.key async for info in front.app.objects.list("files/")]


async def test_a_file_goes_in_and_comes_out(front: Front) -> None:
    client = front.openai()
    expiry: Any = {"anchor": "created_at", "seconds": 3600}
    file = await client.files.create(
        file=("trainé 1.jsonl", CHAT), purpose="fine-tune", expires_after=expiry
    )
    assert (file.filename, file.bytes, file.status) == ("trainé 1.jsonl", len(CHAT), "processed")
    assert file.expires_at == file.created_at + 3600
    assert (await client.files.content(file.id)).content == CHAT
    assert await client.files.retrieve(file.id) == file
    assert (await client.files.delete(file.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.files.content(file.id)


async def test_a_file_says_what_it_was_converted_from(front: Front) -> None:
    given = {
        "filename": "data.json", "format": "alpaca", "sha256": "0" * 64, "rows": 21, "skipped": 1,
        "converter": "windlass 0.1.0",
    }  # fmt: skip
    file = await front.openai().files.create(
        file=("data.jsonl", CHAT),
        purpose="fine-tune",
        extra_body={"windlass": {"provenance": given}},
    )
    assert file.model_extra is not None
    assert file.model_extra["windlass"] == {
        "sha256": hashlib.sha256(CHAT).hexdigest(),
        "format": "chat",
        "examples": 20,
        "provenance": given,
    }
    assert await front.openai().files.retrieve(file.id) == file
    plain = await front.openai().files.create(file=("a.txt", b"x"), purpose="user_data")
    assert plain.model_extra is not None
    assert plain.model_extra["windlass"]["provenance"] is None


async def test_lists_page_and_filter(front: Front) -> None:
    client = front.openai()
    for number in range(5):
        purpose: Any = "user_data" if number == 2 else "fine-tune"
        await client.files.create(file=(f"{number}.txt", CHAT), purpose=purpose)
    names = [file.filename async for file in client.files.list(limit=2, order="asc")]
    assert names == [f"{number}.txt" for number in range(5)]
    assert [file.filename async for file in client.files.list(purpose="user_data")] == ["2.txt"]
    with pytest.raises(openai.BadRequestError, match="must be one of fine-tune, user_data"):
        await client.files.create(file=("a.txt", b"x"), purpose="batch")


async def test_a_range_of_the_content(front: Front) -> None:
    file = await front.openai().files.create(file=("a.bin", CHAT), purpose="user_data")
    for asked, status, found in (
        ("bytes=0-9", 206, slice(0, 10)),
        ("bytes=10-", 206, slice(10, None)),
        ("bytes=-5", 206, slice(-5, None)),
        ("bytes=5-999999999", 206, slice(5, None)),
        ("bytes=a-b", 200, slice(None)),
        ("bytes=999999-", 416, None),
    ):
        async with front.http() as http:
            answer = await http.get(f"/v1/files/{file.id}/content", headers={"Range": asked})
        assert answer.status_code == status, asked
        if found is not None:
            assert answer.content == CHAT[found], asked
            assert int(answer.headers["content-length"]) == len(CHAT[found]), asked


def form(*parts: tuple[str, str | None, bytes], end: bytes = b"--B--\r\n") -> bytes:
    made = b""
    for name, filename, content in parts:
        made += b'--B\r\nContent-Disposition: form-data; name="%b"' % name.encode()
        if filename is not None:
            made += b'; filename="%b"' % filename.encode()
        made += b"\r\n\r\n" + content + b"\r\n"
    return made + end


async def post(front: Front, body: bytes) -> httpx.Response:
    async with front.http() as http:
        return await http.post(
            "/v1/files",
            content=body,
            headers={"content-type": "multipart/form-data; boundary=B"},
        )


async def test_the_purpose_may_come_after_the_file(front: Front) -> None:
    for size in (10, 3 * 2**20):
        content = b"x" * size
        answer = await post(front, form(("file", "a", content), ("purpose", None, b"user_data")))
        assert answer.status_code == 200, answer.text
        found = await front.openai().files.content(answer.json()["id"])
        assert hashlib.sha256(found.content).digest() == hashlib.sha256(content).digest()


FILE, PURPOSE = ("file", "a.jsonl", CHAT), ("purpose", None, b"fine-tune")
ALPACA = b'{"instruction": "a", "output": "b"}'


def provenance(**changes: bytes | None) -> list[tuple[str, str | None, bytes]]:
    sound: dict[str, bytes | None] = {
        "filename": b"a.json", "format": b"alpaca", "sha256": b"0" * 64, "rows": b"2",
        "skipped": b"1", "converter": b"windlass 0.1.0",
    }  # fmt: skip
    return [
        (f"windlass[provenance][{name}]", None, value)
        for name, value in (sound | changes).items()
        if value is not None
    ]


BAD_FORMS = (
    (form(PURPOSE), "file"),
    (form(FILE), "purpose"),
    (form(PURPOSE, FILE, FILE), "file"),
    (form(PURPOSE, ("other", "a", b"x")), "other"),
    (form(PURPOSE, FILE, ("purpose", None, b"batch")), "purpose"),
    (form(("what", None, b"x")), "what"),
    (form(("purpose", None, b"spying"), FILE), "purpose"),
    (form(PURPOSE, ("file", "a/..", b"x")), "file"),
    (form(PURPOSE, ("file", "a.jsonl", b"not json\n")), "file"),
    (form(PURPOSE, ("expires_after[seconds]", None, b"x"), FILE), "expires_after.anchor"),
    *(
        (form(PURPOSE, *provenance(**{name: value}), FILE), f"windlass.provenance.{name}")
        for name, value in {
            "filename": b"a\x01",
            "format": b"Alpaca!",
            "sha256": b"0" * 63,
            "rows": b"-1",
            "skipped": b"2",
            "converter": b"x" * 65,
        }.items()
    ),
    (form(PURPOSE, *provenance(rows=None), FILE), "windlass.provenance.rows"),
    (form(PURPOSE, ("windlass[provenance][x]", None, b"y"), FILE), "windlass[provenance][x]"),
    (form(("purpose", None, b"\xff"), FILE), None),
    (form(("purpose", None, b"x" * 100_000), FILE), None),
    (form(PURPOSE, FILE, end=b""), None),
    (b"nonsense", None),
    (b"", None),
)


async def test_a_bad_form_is_refused_and_leaves_nothing(front: Front) -> None:
    for body, param in BAD_FORMS:
        answer = await post(front, body)
        assert answer.status_code == 400, (answer.text, body[:200])
        assert answer.json()["error"]["param"] == param, body[:200]
        assert await stored(front) == [], body[:200]


async def test_a_foreign_file_is_refused_with_its_conversion(front: Front) -> None:
    client = front.openai()
    for content, said in (
        (ALPACA, "Alpaca"), (b"[%b]" % ALPACA, "a JSON array"), (gzip.compress(CHAT), "a gzip file")
    ):  # fmt: skip
        with pytest.raises(
            openai.BadRequestError, match=f"looks like {said}.*windlass files convert"
        ):
            await client.files.create(file=("data.json", content), purpose="fine-tune")
        assert await stored(front) == []


async def test_a_file_that_is_too_large_is_refused(front: Front) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        await front.openai().files.create(file=("a", b"x" * (5 * 2**20)), purpose="user_data")
    assert caught.value.status_code == 413
    assert await stored(front) == []


async def test_a_file_of_no_announced_length_is_bounded_too(front: Front) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield form(("purpose", None, b"user_data"), ("file", "a", b""), end=b"")[:-2]
        for _ in range(100):
            yield b"x" * 2**17

    async with front.http() as http:
        answer = await http.post(
            "/v1/files",
            content=endless(),
            headers={"content-type": "multipart/form-data; boundary=B"},
        )
    assert answer.status_code == 413
    assert await stored(front) == []


async def test_a_client_that_breaks_off_leaves_nothing(front: Front) -> None:
    host, port = front.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    start = form(("purpose", None, b"user_data"), ("file", "a", b"x" * 2**20), end=b"")
    head = (
        f"POST /v1/files HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {front.owner_key}\r\n"
        f"content-type: multipart/form-data; boundary=B\r\ncontent-length: {2**21}\r\n\r\n"
    )
    writer.write(head.encode() + start)
    await writer.drain()
    incoming = front.app.settings.data_dir / "objects" / "incoming"
    await until(lambda: any(incoming.iterdir()))
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    await until(lambda: not any(incoming.iterdir()))
    assert await stored(front) == []
    assert [file async for file in front.openai().files.list()] == []


async def test_a_key_of_another_project_sees_nothing(front: Front) -> None:
    file = await front.openai().files.create(file=("a", b"x"), purpose="user_data")
    async with front.http() as http:
        other = (await http.post("/v1/projects", json={"title": "other"})).json()["id"]
    client = front.openai(project=other)
    assert [file async for file in client.files.list()] == []
    for ask in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            await ask(file.id)
