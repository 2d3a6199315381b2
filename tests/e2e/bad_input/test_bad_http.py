"""Requests that are no requests: bodies, paths, verbs and pages that make no sense."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest
from openai import APIStatusError, BadRequestError, NotFoundError
from tests.support.clients.refusals import refusal, refused
from tests.support.factories.tenants import Tenants
from tests.support.processes.front_door import GOOD, Front, jsonl, upload

TOO_LARGE = 8 * 2**20 + 1
JSON = {"content-type": "application/json"}
POSTS = (
    "/v1/fine_tuning/jobs", "/v1/chat/completions", "/v1/completions", "/v1/embeddings",
    "/v1/models/imports", "/v1/organizations", "/v1/projects", "/v1/api_keys", "/v1/clusters",
)  # fmt: skip
LISTS = (
    "/v1/files", "/v1/fine_tuning/jobs", "/v1/organizations", "/v1/projects", "/v1/members",
    "/v1/api_keys", "/v1/audit_events",
)  # fmt: skip


@pytest.fixture(scope="module")
def http(tenants: Tenants) -> Any:
    with tenants.admin.http() as made:
        yield made


@pytest.mark.parametrize("path", POSTS)
def test_a_body_that_is_no_json_object(http: httpx.Client, path: str) -> None:
    for body in (
        b"", b"{", b"nope", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000,
        b'{"model": "\\ud800"}', b'{"title": "\\ud800", "name": "\\ud800", "\\ud800": 1}',
        b'{"model": ' + b"9" * 5000 + b"}",
    ):  # fmt: skip
        said = refusal(http.post(path, content=body, headers=JSON), 400)
        assert said.type == "invalid_request_error", (path, body[:30])


@pytest.mark.parametrize("path", POSTS)
def test_a_body_of_another_kind(http: httpx.Client, path: str) -> None:
    refusal(http.post(path, data={"model": "x"}), 400)
    refusal(http.post(path, content=b"x", headers={"content-type": "text/plain"}), 400)


@pytest.mark.parametrize("path", POSTS)
def test_a_nul_character_is_refused(http: httpx.Client, path: str) -> None:
    body = b'{"model": "a\\u0000b", "training_file": "x", "title": "a\\u0000", "messages": []}'
    assert refusal(http.post(path, content=body, headers=JSON)).status in (400, 404)
    refusal(http.get("/v1/files/a%00b"), 400)


@pytest.mark.parametrize("path", POSTS)
def test_a_body_that_is_too_large(http: httpx.Client, path: str) -> None:
    said = refusal(http.post(path, content=b" " * TOO_LARGE, headers=JSON), 413)
    assert said.code == "request_too_large"

    def pieces() -> Any:
        for _ in range(9):
            yield b" " * 2**20

    assert refusal(http.post(path, content=pieces(), headers=JSON), 413) == said


def test_a_chat_that_is_too_large_for_openai_python(tenants: Tenants) -> None:
    client = tenants.member.openai()
    messages = [{"role": "user", "content": "x" * TOO_LARGE}]
    said = refused(APIStatusError, client.chat.completions.create, model="tiny", messages=messages)
    assert (said.status, said.code) == (413, "request_too_large")


@pytest.mark.parametrize(
    "path", ["/v1/nope", "/v1/", "/nope", "/v1/files/a/b/c", "/v1/files/", "/v1/projects/",
             "/v1/fine_tuning/jobs/x/y", "/v1//files", "/v2/files", "/v1/fine_tuning"]
)  # fmt: skip
def test_a_path_that_is_not_there(http: httpx.Client, path: str) -> None:
    for method in ("GET", "POST", "PATCH"):
        said = refusal(http.request(method, path, json={} if method != "GET" else None), 404)
        assert said.code == "unknown_url", method
        assert path in said.message


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/v1/files"), ("PATCH", "/v1/fine_tuning/jobs"), ("GET", "/v1/chat/completions"),
     ("DELETE", "/v1/embeddings"), ("POST", "/v1/me"), ("DELETE", "/v1/projects"),
     ("POST", "/v1/usage"), ("GET", "/v1/models/imports/x/complete"), ("POST", "/healthz"),
     ("OPTIONS", "/v1/files")],
)  # fmt: skip
def test_a_verb_that_the_path_does_not_take(http: httpx.Client, method: str, path: str) -> None:
    answer = http.request(method, path)
    if path.startswith("/v1/models/"):
        refusal(answer, 404)  # a model's name may hold slashes
        return
    assert refusal(answer, 405).code == "method_not_allowed"
    assert answer.headers["allow"]


@pytest.mark.parametrize("path", LISTS)
def test_pages_that_cannot_be(http: httpx.Client, path: str) -> None:
    assert http.get(path, params={"limit": 0}).status_code == 200
    for limit in ("-1", str(10**9), str(10**40), "many", "1.5", ""):
        assert refusal(http.get(path, params={"limit": limit}), 400).param == "limit", limit
    refusal(http.get(path, params={"after": "x" * 600}), 400)
    for after in ("unknown", "../..", "ä\n", "%"):
        answer = http.get(path, params={"after": after})
        assert answer.status_code in (200, 404), (after, answer.text)
        if answer.status_code == 404:
            refusal(answer)


def test_a_page_after_nothing_is_empty(tenants: Tenants) -> None:
    client = tenants.member.openai()
    upload(client, jsonl([GOOD]))
    assert list(client.files.list(after="file-unknown")) == []
    refused(NotFoundError, lambda: list(client.fine_tuning.jobs.list(after="ftjob-unknown")))


@pytest.mark.parametrize(
    ("query", "param"),
    [({"start_time": "-1"}, "start_time"), ({"start_time": str(2**63)}, "start_time"),
     ({"start_time": str(2**62)}, None), ({}, "start_time"), ({"start_time": "soon"}, "start_time"),
     ({"start_time": "1", "end_time": str(2**63 - 1)}, None),
     ({"start_time": "1", "bucket_width": "year"}, "bucket_width"),
     ({"start_time": "1", "group_by": "secret"}, "group_by"),
     ({"start_time": "1", "limit": "10000"}, "limit"), ({"start_time": "1", "page": "x"}, "page"),
     ({"start_time": "1", "page": "é" * 100}, "page")],
)  # fmt: skip
def test_usage_that_cannot_be_asked(
    http: httpx.Client, query: dict[str, str], param: str | None
) -> None:
    said = refusal(http.get("/v1/usage", params=query), 400)
    assert param is None or said.param == param


@pytest.mark.parametrize(
    "odd", ["x" * 7000, "ä" * 1200, "a\nb", "a b", "'", "\ufffd", "%", "%2525"]
)
def test_odd_ids_are_just_not_found(http: httpx.Client, odd: str) -> None:
    name = quote(odd, safe="")
    for path in (
        "/v1/files/{}", "/v1/files/{}/content", "/v1/models/{}", "/v1/fine_tuning/jobs/{}",
        "/v1/fine_tuning/jobs/{}/events", "/v1/fine_tuning/jobs/{}/events?stream=true",
        "/v1/fine_tuning/jobs/{}/checkpoints", "/v1/fine_tuning/jobs/{}/logs",
        "/v1/organizations/{}", "/v1/projects/{}", "/v1/clusters/{}",
    ):  # fmt: skip
        said = refusal(http.get(path.format(name)), 404)
        assert len(said.message) <= 1000 or said.code == "unknown_url"
    for path in ("/v1/files/{}", "/v1/models/{}", "/v1/api_keys/{}", "/v1/clusters/{}"):
        refusal(http.delete(path.format(name)), 404)
    assert refusal(http.delete(f"/v1/secrets/{name}")).status in (400, 404)


def test_a_request_id_is_kept_when_it_is_one(http: httpx.Client) -> None:
    for given, kept in (("mine-1", True), ("a b", False), ("x" * 200, False)):
        answer = http.get("/v1/files/none", headers={"x-request-id": given})
        assert refusal(answer, 404)
        assert (answer.headers["x-request-id"] == given) is kept


def test_chat_names_what_is_missing(tenants: Tenants) -> None:
    with tenants.member.http() as http:
        for path in POSTS[1:4]:
            said = refusal(http.post(path, json={"messages": []}), 400)
            assert (said.param, said.code) == ("model", "missing_required_parameter")
            wrong: tuple[Any, ...] = (1, None, ["x"], {})
            for model in wrong:
                assert refusal(http.post(path, json={"model": model}), 400).param == "model"
            said = refusal(http.post(path, json={"model": "x", "stream": "yes"}), 400)
            assert said.param == "stream"


def test_a_model_that_is_not_there_does_not_chat(tenants: Tenants) -> None:
    client = tenants.member.openai()
    models = ("unknown", "a\0b", "x" * 10_000, "../x", "a\nb", "ft:x:y::z", "\u202e", "Ω")
    for model in models:
        said = refused(
            NotFoundError,
            client.chat.completions.create,
            model=model,
            messages=[{"role": "user", "content": "x"}],
        )
        assert (said.code, said.param) == ("model_not_found", "model")


def test_an_idempotency_key_is_bounded(front: Front, tenants: Tenants) -> None:
    with tenants.member.http() as http:
        body = {"model": "x", "training_file": "y"}
        for key in ("x" * 129, "x" * 300, "\xe4".encode("latin-1")):
            headers = {b"idempotency-key": key if isinstance(key, bytes) else key.encode()}
            answer = http.post("/v1/fine_tuning/jobs", json=body, headers=headers)
            refusal(answer, 400)


def test_a_query_that_is_wrong_in_openai_python(tenants: Tenants) -> None:
    client = tenants.member.openai()
    said = refused(BadRequestError, client.files.list, limit=-1)
    assert said.param == "limit"
    said = refused(BadRequestError, client.files.list, order="sideways")
    assert said.param == "order"
    many = {f"metadata[k{number}]": "v" for number in range(17)}
    said = refused(BadRequestError, client.fine_tuning.jobs.list, extra_query=many)
    assert said.param == "metadata"
