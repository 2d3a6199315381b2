"""The client's side of the protocol, against a server that misbehaves by script."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.fakes.kube_api import kube_api, listed, pod, refused, status
from tests.support.waiting import PATIENCE

from windlass_agent.kube import (
    Access,
    ApiServerUnavailable,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    Kube,
    KubeError,
    NoAccess,
    ResourceNotFound,
    Unauthorized,
)
from windlass_agent.kube.access import in_cluster
from windlass_agent.kube.resources import JOBS, NODES, PODS


async def test_a_list_is_fetched_in_pages() -> None:
    async def answer(request: web.Request) -> web.Response:
        if not request.query.get("continue"):
            return listed(pod("a", 1), pod("b", 2), version=9, more="token")
        assert request.query["continue"] == "token"
        return listed(pod("c", 3), version=9)

    async with kube_api(answer) as kube:
        found = await kube.list(PODS.path("team"), label_selector="x=y")
    assert [item["metadata"]["name"] for item in found] == ["a", "b", "c"]


async def test_a_list_that_took_too_long_has_expired() -> None:
    async def answer(request: web.Request) -> web.Response:
        if not request.query.get("continue"):
            return listed(pod("a", 1), version=9, more="token")
        return refused(410, "Expired", "The provided continue parameter is too old")

    async with kube_api(answer) as kube:
        with pytest.raises(Expired):
            await kube.list(PODS.path("team"))


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", ResourceNotFound),
        (409, "AlreadyExists", Conflict),
        (410, "Expired", Expired),
        (418, "Teapot", KubeError),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", ApiServerUnavailable),
        (500, "InternalError", ApiServerUnavailable),
        (504, "Timeout", ApiServerUnavailable),
    ],
)
async def test_refusals_say_what_the_server_said(
    code: int, reason: str, error: type[KubeError]
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return refused(code, reason, "because")

    async with kube_api(answer) as kube:
        with pytest.raises(error) as raised:
            await kube.get(PODS.path("team", "a"))
    assert (raised.value.status, raised.value.reason, raised.value.message) == (
        code,
        reason,
        "because",
    )
    assert type(raised.value) is error


async def test_an_unknown_field_is_no_passing_trouble() -> None:
    """Kubernetes 1.36 says 500 for it, without a reason."""

    async def answer(_: web.Request) -> web.Response:
        return refused(500, "", "failed to create typed patch object (a; v1, Kind=Pod): .colour")

    async with kube_api(answer) as kube:
        with pytest.raises(Invalid, match="colour"):
            await kube.apply(PODS.path("team", "a"), {})


async def test_a_proxys_error_page_is_an_error_too() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>Bad Gateway</html>")

    async with kube_api(answer) as kube:
        with pytest.raises(ApiServerUnavailable, match="Bad Gateway"):
            await kube.get(PODS.path("team", "a"))


async def test_an_answer_that_is_no_json_is_no_answer() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async with kube_api(answer) as kube:
        with pytest.raises(ApiServerUnavailable):
            await kube.get("/readyz")


async def test_a_server_that_is_away_is_unavailable(unused_tcp_port: int) -> None:
    async def authorization() -> str:
        return ""

    async with Kube(Access(f"http://127.0.0.1:{unused_tcp_port}", None, authorization)) as kube:
        with pytest.raises(ApiServerUnavailable, match="does not answer"):
            await kube.get("/api")


@pytest.fixture
def unused_tcp_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_apply_says_who_applies_and_refuses_unknown_fields() -> None:
    seen: list[tuple[web.Request, bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request, await request.read()))
        return web.json_response({"ok": True})

    async with kube_api(answer, token="secret") as kube:
        await kube.apply(JOBS.path("team", "a"), {"spec": {}}, force=False, subresource="status")
        await kube.delete(JOBS.path("team", "a"), uid="u", grace_seconds=0)
        await kube.patch(JOBS.path("team", "a"), [{"op": "remove", "path": "/x"}], kind="json")
    (applied, body), (deleted, options), (patched, _) = seen
    assert applied.path == "/apis/batch/v1/namespaces/team/jobs/a/status"
    assert applied.headers["Content-Type"] == "application/apply-patch+yaml"
    assert applied.headers["Authorization"] == "Bearer secret"
    assert dict(applied.query) == {"fieldManager": "windlass-agent", "fieldValidation": "Strict"}
    assert json.loads(body) == {"spec": {}}
    assert json.loads(options) == {
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u"},
        "gracePeriodSeconds": 0,
    }
    assert deleted.method == "DELETE"
    assert patched.headers["Content-Type"] == "application/json-patch+json"


async def _watched(*parts: bytes, cut: bool = False) -> list[tuple[str, object]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        for part in parts:
            await stream.write(part)
        if cut and request.transport is not None:
            request.transport.abort()
        return stream

    async with kube_api(answer) as kube:
        events = kube.watch(PODS.path("team"), resource_version="1")
        async with asyncio.timeout(PATIENCE), aclosing(events) as stream:
            return [(kind, item["metadata"]["resourceVersion"]) async for kind, item in stream]


def _event(kind: str, item: dict[str, object]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


async def test_events_may_come_in_any_pieces() -> None:
    whole = _event("ADDED", pod("a", 2)) + _event("MODIFIED", pod("a", 3)) + b"\n"
    parts = [whole[:5], whole[5:7], whole[7:-20], whole[-20:]]
    assert await _watched(*parts) == [("ADDED", "2"), ("MODIFIED", "3")]


async def test_an_event_may_be_large() -> None:
    large = pod("a", 2, note="x" * 3_000_000)
    assert await _watched(_event("ADDED", large)) == [("ADDED", "2")]


async def test_a_cut_stream_ends_after_its_last_whole_event() -> None:
    parts = [_event("ADDED", pod("a", 2)), _event("ADDED", pod("b", 3))[:20]]
    assert await _watched(*parts, cut=True) in ([("ADDED", "2")], [])


async def test_bookmarks_are_told() -> None:
    mark = _event("BOOKMARK", {"metadata": {"resourceVersion": "7"}})
    assert await _watched(mark) == [("BOOKMARK", "7")]


async def test_an_expired_version_is_told_in_the_stream() -> None:
    gone = _event("ERROR", status(410, "Expired", "too old resource version"))
    with pytest.raises(Expired, match="too old"):
        await _watched(_event("ADDED", pod("a", 2)), gone)


async def test_another_error_in_the_stream_is_raised_as_it_is() -> None:
    error = _event("ERROR", status(500, "InternalError", "etcdserver: no leader"))
    with pytest.raises(ApiServerUnavailable, match="no leader"):
        await _watched(error)


async def test_an_expired_version_may_be_told_at_once() -> None:
    async def answer(_: web.Request) -> web.Response:
        return refused(410, "Expired", "too old")

    async with kube_api(answer) as kube:
        with pytest.raises(Expired):
            async for _ in kube.watch(PODS.path(), resource_version="1"):
                pass


async def test_what_a_cluster_serves() -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/apis/batch/v1":
            return web.json_response({"resources": [{"name": "jobs"}, {"name": "cronjobs"}]})
        return refused(404, "NotFound")

    async with kube_api(answer) as kube:
        assert await kube.serves(JOBS)
        assert not await kube.serves(NODES)


@pytest.mark.parametrize("name", ["../secrets", "a/b", "a?b", "a%2fb", ".", "..", "a..b", "", "é"])
def test_a_path_keeps_to_its_segments(name: str) -> None:
    if not name:
        assert PODS.path("team", name) == "/api/v1/namespaces/team/pods"
        return
    with pytest.raises(ValueError, match="part of a path"):
        PODS.path("team", name)
    with pytest.raises(ValueError, match="part of a path"):
        PODS.path(name)


def test_paths() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("team", "a", "log") == "/api/v1/namespaces/team/pods/a/log"
    assert NODES.path("team", "n") == "/api/v1/nodes/n"
    assert JOBS.api_version == "batch/v1"
    assert PODS.path("team", "system:x") == "/api/v1/namespaces/team/pods/system:x"


async def test_a_rotated_token_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("first\n")
    monkeypatch.setattr("windlass_agent.kube.access._tls", lambda _: None)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    access = await in_cluster(tmp_path)
    assert access.url == "https://10.96.0.1:443"
    assert await access.authorization() == "Bearer first"
    (tmp_path / "token").write_text("second")
    assert await access.authorization() == "Bearer first"
    monkeypatch.setattr("windlass_agent.kube.access._TOKEN_SECONDS", -1.0)
    assert await access.authorization() == "Bearer second"


async def test_outside_of_a_pod_there_is_no_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(NoAccess):
        await Kube.connect()
    with pytest.raises(NoAccess):
        await Kube.connect(tmp_path / "absent")
