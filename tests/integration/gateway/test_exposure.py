"""Responses without a key show that the server is up, and nothing else."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.support.services.front import Front, running_front

from windlass.core.app import runtime_dir


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield front


async def test_strangers_learn_nothing(front: Front) -> None:
    async def fails() -> None:
        raise RuntimeError("10.1.2.3 is away")

    async with httpx.AsyncClient(base_url=front.url) as http:
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        assert (await http.get("/readyz")).json() == {"status": "ok"}
        front.app.add_check("part", fails)
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "not ready"})
        for path in ("/metrics", "/docs", "/openapi.json"):
            refused = await http.get(path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (
                401,
                "invalid_api_key",
            )


async def test_members_read_the_api_and_operators_the_metrics(front: Front) -> None:
    async with front.http() as http:
        made = (await http.post("/v1/api_keys", json={"name": "m"})).json()["value"]
        assert "windlass_http_requests_total" in (await http.get("/metrics")).text
    async with front.http(made) as http:
        assert "/v1/files" in (await http.get("/openapi.json")).json()["paths"]
        assert (await http.get("/metrics")).status_code == 403


async def test_operators_have_a_listener_of_their_own(front: Front) -> None:
    address = runtime_dir(front.app.settings.data_dir) / "front.operations"
    async with httpx.AsyncClient(base_url=address.read_text().strip()) as http:
        assert (await http.get("/readyz")).json()["database"] == "ok"
        assert "windlass_http_requests_total" in (await http.get("/metrics")).text
        assert "/v1/files" in (await http.get("/openapi.json")).json()["paths"]
        page = await http.get("/docs")
        assert "default-src 'none'" in page.headers["content-security-policy"]


async def test_nobody_lists_our_services(front: Front) -> None:
    socket = runtime_dir(front.app.settings.data_dir) / "front.sock"
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ServerReflectionInfo(asked).read()
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_of_two_authorization_headers_neither_counts(front: Front) -> None:
    good, bad = f"Bearer {front.owner_key}", "Bearer wl-other"
    async with httpx.AsyncClient(base_url=front.url) as http:
        for pair in ((good, bad), (bad, good), (good, good)):
            headers = [("Authorization", one) for one in pair]
            answer = await http.get("/v1/me", headers=headers)
            assert answer.status_code == 400
            assert "more than one Authorization" in answer.json()["error"]["message"]


async def test_a_project_sees_the_clusters_that_it_may_use(front: Front) -> None:
    async with front.http() as http:
        clusters = {
            name: (await http.post("/v1/clusters", json={"name": name})).json()["id"]
            for name in ("east", "west")
        }
        rooms = [
            (await http.post("/v1/projects", json={"title": title})).json()["id"]
            for title in ("one", "two")
        ]
        for room, name in zip(rooms, clusters, strict=True):
            path = f"/v1/clusters/{clusters[name]}/assignments/{room}"
            answer = await http.put(path, json={})
            assert answer.status_code == 200, answer.text
        keys = []
        for role, room in (("project_member", rooms[0]), ("organization_owner", "")):
            body = {"name": role, "role": role, "project_id": room}
            keys.append((await http.post("/v1/api_keys", json=body)).json()["value"])
        assert await seen(http) == {"east", "west"}
        other = (await http.post("/v1/organizations", json={"title": "Bolt"})).json()["id"]
        body = {"name": "o", "role": "organization_owner"}
        headers = {"OpenAI-Organization": other}
        keys.append((await http.post("/v1/api_keys", json=body, headers=headers)).json()["value"])
    expected: tuple[set[str], ...] = ({"east"}, {"east", "west"}, set())
    for key, names in zip(keys, expected, strict=True):
        async with front.http(key) as http:
            assert await seen(http) == names
            for name, cluster in clusters.items():
                status = (await http.get(f"/v1/clusters/{cluster}")).status_code
                assert status == (200 if name in names else 404)


async def seen(http: httpx.AsyncClient) -> set[str]:
    return {one["name"] for one in (await http.get("/v1/clusters")).json()["data"]}
