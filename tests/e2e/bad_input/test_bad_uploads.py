"""Uploads that are cut, malformed or too much: nothing stored, nothing listed."""

import os
import socket
from collections.abc import Iterator

import httpx
import pytest
from openai import APIStatusError, BadRequestError, NotFoundError
from tests.support.clients.refusals import refusal, refused
from tests.support.environments import postgres
from tests.support.factories.tenants import Tenants
from tests.support.processes.front_door import GOOD, Front, jsonl, upload
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import wait_until

BOUNDARY = "b0undary"
FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
MEBIBYTE = 2**20


def part(name: str, value: bytes, *, filename: str | None = None) -> bytes:
    extra = f'; filename="{filename}"' if filename is not None else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n'
    return head.encode() + value + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()
FILE = part("file", jsonl([GOOD]), filename="a.jsonl")
PURPOSE = part("purpose", b"fine-tune")
FORMS: dict[str, tuple[bytes, str | None]] = {
    "nothing": (END, "file"),
    "no file": (PURPOSE + END, "file"),
    "no purpose": (FILE + END, "purpose"),
    "a file without a name": (PURPOSE + part("file", b"x") + END, "file"),
    "a file with an empty name": (PURPOSE + part("file", b"x", filename="") + END, "file"),
    "two files": (PURPOSE + FILE + FILE + END, "file"),
    "another field": (PURPOSE + part("mode", b"x") + FILE + END, "mode"),
    "another file": (PURPOSE + part("image", b"x", filename="x") + END, "image"),
    "a wrong purpose": (part("purpose", b"fun") + FILE + END, "purpose"),
    "an odd purpose": (part("purpose", "ü\n\x07".encode()) + FILE + END, "purpose"),
    "a purpose of ours": (part("purpose", b"fine-tune-results") + FILE + END, "purpose"),
    "a long purpose": (part("purpose", b"x" * 60_000) + FILE + END, "purpose"),
    "a huge purpose": (part("purpose", b"x" * 100_000) + FILE + END, None),
    "a purpose of no text": (part("purpose", b"\xff\xfe") + FILE + END, None),
    "a purpose afterwards": (FILE + part("purpose", b"fun") + END, "purpose"),
    "an unprintable name": (PURPOSE + part("file", b"x", filename="a\x07b") + END, "file"),
    "a long name": (PURPOSE + part("file", b"x", filename="x" * 300) + END, "file"),
    "an expiry too soon": (
        PURPOSE + part("expires_after[anchor]", b"created_at")
        + part("expires_after[seconds]", b"1") + FILE + END, "expires_after.seconds",
    ),
    "an expiry of words": (
        PURPOSE + part("expires_after[anchor]", b"created_at")
        + part("expires_after[seconds]", b"soon") + FILE + END, "expires_after.seconds",
    ),
    "an expiry of another anchor": (
        PURPOSE + part("expires_after[anchor]", b"now") + FILE + END, "expires_after.anchor",
    ),
    "an expiry without end": (
        PURPOSE + part("expires_after[anchor]", b"created_at")
        + part("expires_after[seconds]", b"9" * 5000) + FILE + END, "expires_after.seconds",
    ),
    "no end": (PURPOSE + FILE, None),
    "half a file": (PURPOSE + FILE[:-20], None),
    "no form": (b"hello", None),
    "another boundary": ((PURPOSE + FILE + END).replace(b"b0undary", b"other"), None),
    "a head without end": (f"--{BOUNDARY}\r\nContent-".encode() + b"x" * 3 * MEBIBYTE, None),
    "very many heads": (f"--{BOUNDARY}\r\n".encode() + b"a: b\r\n" * 100_000 + b"\r\n", None),
}  # fmt: skip


@pytest.fixture
def untouched(front: Front, tenants: Tenants) -> Iterator[None]:
    """Afterwards there is no file, no ticket and no object that was not there before."""
    client = tenants.member.openai()
    tickets = "SELECT id FROM files_uploads WHERE NOT committed"
    before = ({file.id for file in client.files.list()}, front.objects(), front.rows(tickets))
    yield
    wait_until(lambda: front.objects() <= before[1])
    wait_until(lambda: set(front.rows(tickets)) <= set(before[2]))
    assert {file.id for file in client.files.list()} == before[0]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("name", FORMS)
def test_a_form_that_is_none(tenants: Tenants, name: str) -> None:
    body, param = FORMS[name]
    with tenants.member.http() as http:
        said = refusal(http.post("/v1/files", content=body, headers=FORM), 400)
    assert param is None or said.param == param, said


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "kind", ["", "application/json", "multipart/form-data", "multipart/form-data; boundary=",
             "multipart/form-data; boundary=" + "x" * 300, "text/plain; boundary=x"]
)  # fmt: skip
def test_an_upload_is_a_form(tenants: Tenants, kind: str) -> None:
    with tenants.member.http() as http:
        headers = {"content-type": kind}
        refusal(http.post("/v1/files", content=PURPOSE + FILE + END, headers=headers), 400)


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("length", ["whole", "chunked"])
@pytest.mark.parametrize("cut", [10, 150, 20 * MEBIBYTE])
def test_an_upload_that_is_cut_off_leaves_nothing(
    front: Front, tenants: Tenants, length: str, cut: int
) -> None:
    whole = PURPOSE + part("file", os.urandom(30 * MEBIBYTE), filename="big.bin") + END
    framing = f"content-length: {len(whole)}" if length == "whole" else "transfer-encoding: chunked"
    head = (
        f"POST /v1/files HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {tenants.member.key}\r\n"
        f"content-type: {FORM['content-type']}\r\n{framing}\r\n\r\n"
    ).encode()
    sent = whole[:cut] if length == "whole" else b"%x\r\n" % len(whole) + whole[:cut]
    with socket.create_connection(("127.0.0.1", front.windlass.port), timeout=20) as connection:
        connection.sendall(head + sent)
        if cut > MEBIBYTE:
            wait_until(lambda: front.rows("SELECT id FROM files_uploads WHERE NOT committed"))


def test_names_are_names_and_never_paths(front: Front, tenants: Tenants) -> None:
    client = tenants.member.openai()
    for given, kept in (("../../etc/passwd", "passwd"), ("C:\\x\\y.txt", "y.txt"), ("ä b", "ä b")):
        file = upload(client, b"x", purpose="user_data", name=given)
        assert file.filename == kept
        assert client.files.content(file.id).read() == b"x"
        client.files.delete(file.id)
    assert all("passwd" not in name for name in front.objects())


def test_content_is_asked_for_by_ranges_that_exist(tenants: Tenants) -> None:
    client = tenants.member.openai()
    file = upload(client, b"0123456789", purpose="user_data")
    with tenants.member.http() as http:
        path = f"/v1/files/{file.id}/content"
        for value, content in (
            ("bytes=2-4", b"234"), ("bytes=-3", b"789"), ("bytes=8-", b"89"),
            ("bytes=x", b"0123456789"), ("lines=1-2", b"0123456789"),
        ):  # fmt: skip
            assert http.get(path, headers={"range": value}).content == content, value
        for value in ("bytes=10-", "bytes=5-2", "bytes=-0", f"bytes={9**18}-"):
            refusal(http.get(path, headers={"range": value}), 416)


def test_a_deleted_file_is_gone(tenants: Tenants) -> None:
    client = tenants.member.openai()
    file = upload(client, b"x", purpose="user_data")
    client.files.delete(file.id)
    for call in (client.files.retrieve, client.files.delete, client.files.content):
        refused(NotFoundError, call, file.id)


def test_signed_addresses_are_not_to_be_guessed(front: Front, tenants: Tenants) -> None:
    key = next(iter(sorted(front.objects())), "files/x/y")
    for path in (f"/objects/{key}", f"/objects/{key}?signature=x", "/objects/../owner.key"):
        for method in ("GET", "PUT", "DELETE", "POST"):
            said = refusal(httpx.request(method, front.windlass.url + path))
            assert said.status in (400, 403, 404, 405), (method, path)


def test_a_file_that_is_too_large(postgres_url: str) -> None:
    with (
        postgres.reachable_folder() as folder,
        postgres.fresh_database(postgres_url) as url,
        running(
            make_single(
                folder / "data",
                {
                    "database": {"url": url},
                    "agent": {"enabled": False},
                    "files": {"max_bytes": 2 * MEBIBYTE},
                },
            )
        ) as made,
    ):
        front, client = Front(made, url), made.openai(max_retries=0)
        upload(client, b"x" * 2 * MEBIBYTE, purpose="user_data")
        before = front.objects()
        for size in (2 * MEBIBYTE + 1, 40 * MEBIBYTE):
            said = refused(APIStatusError, upload, client, b"x" * size, purpose="user_data")
            assert (said.status, said.code) == (413, "request_too_large")

        def endless() -> Iterator[bytes]:
            yield PURPOSE + part("file", b"", filename="x")[:-2]
            for _ in range(40):
                yield b"x" * MEBIBYTE

        with made.http() as http:
            refusal(http.post("/v1/files", content=endless(), headers=FORM), 413)
        wait_until(lambda: front.objects() <= before)
        assert len(list(client.files.list())) == 1
        assert not front.rows("SELECT id FROM files_uploads WHERE NOT committed")


def test_a_purpose_is_told_by_its_class(tenants: Tenants) -> None:
    said = refused(BadRequestError, upload, tenants.member.openai(), b"x", purpose="fun")
    assert (said.code, said.param) == ("invalid_purpose", "purpose")
