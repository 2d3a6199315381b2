"""Sessions are searched, samplers joined, and what they are asked is cancelled."""

import asyncio
from typing import Any

import httpx
import psycopg
import pytest
from tests.integration.tuning.tenants.test_tenants import PROMPT
from tests.integration.tuning.test_log import Client
from tests.support.services.filled_tenant import ok
from tests.support.services.front import Front

from windlass.tuning_api.trainers.null import NullTrainer


async def found(http: httpx.AsyncClient, **query: Any) -> list[str]:
    answer = await ok(http.post("/api/v1/sessions/search", json=query))
    return [one["session_id"] for one in answer["sessions"]]


async def session(http: httpx.AsyncClient, **values: Any) -> str:
    made = await ok(http.post("/api/v1/create_session", json=values))
    return str(made["session_id"])


async def test_sessions_are_found_by_what_they_are(front: Front) -> None:
    async with front.http() as http:
        first = await session(http, display_name="Red 100% Fox", user_metadata={"a": "1"})
        second = await session(http, display_name="red hen", user_metadata={"a": "2", "b": "1"})
        reason = {"reason": {"type": "errored"}, "detail": "why"}
        await ok(http.post(f"/api/v1/sessions/{second}/finish", json=reason))
        with psycopg.connect(
            front.app.database.url.replace("+psycopg", ""), autocommit=True
        ) as connection:
            # One was made before the other.
            connection.execute(
                "UPDATE tuning_sessions SET created_at = created_at - 9 WHERE id = %s", (first,)
            )
        assert await found(http) == [second, first]
        assert await found(http, display_name="RED") == [second, first]
        assert await found(http, display_name="fox 100%") == [first]
        assert await found(http, display_name="hen", session_id=first) == [second, first]
        assert await found(http, display_name="r%n") == []
        assert await found(http, user_metadata={"a": "1"}) == [first]
        assert await found(http, statuses=[{"type": "active"}]) == [first]
        assert await found(http, statuses=[{"type": "client_finished"}]) == [second]
        won = {"type": "client_finished", "reasons": ["success"]}
        assert await found(http, statuses=[won]) == []
        assert await found(http, statuses=[{"type": "failed"}]) == []
        assert await found(http, owner={"type": "user", "owner_urns": ["nobody"]}) == []
        page = await ok(http.post("/api/v1/sessions/search", json={"limit": 1}))
        assert page["sessions"][0]["status"] == {"type": "client_finished", **reason}
        assert await found(http, limit=1, cursor=page["next_cursor"]) == [first]


async def test_a_search_ends_at_the_project(front: Front) -> None:
    async with front.http() as http:
        mine = await session(http, display_name="mine")
        project = await ok(http.post("/v1/projects", json={"title": "other"}))
        body = {"name": "key", "project_id": project["id"], "role": "project_owner"}
        key = await ok(http.post("/v1/api_keys", json=body))
    async with front.http(key["value"]) as other:
        everyone: dict[str, Any] = {"owner": {"type": "accessible"}}
        assert await found(other, **everyone) == []
        assert await found(other, session_id=mine, **everyone) == []
        theirs = await session(other)
        assert await found(other, **everyone) == [theirs]
        refused = await other.post("/api/v1/sessions/search", json={"project_ids": ["proj_x"]})
        assert refused.status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0}, {"limit": 201}, {"display_name": "a " * 20}, {"display_name": "x" * 300},
        {"user_metadata": {"a": "x" * 3000}}, {"statuses": [{"type": "lost"}]},
        {"owner": {"type": "user", "owner_urns": ["x"] * 17}},
    ],
    ids=lambda value: str(value)[:24],
)  # fmt: skip
async def test_a_search_is_bounded(front: Front, query: dict[str, Any]) -> None:
    async with front.http() as http:
        refused = await http.post("/api/v1/sessions/search", json=query)
        assert refused.status_code == 400, refused.text


async def test_what_a_sampler_was_asked_is_cancelled(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked = asyncio.Event()

    async def hang(*_: object) -> Any:
        is_asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(NullTrainer, "sample", hang)
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        body = {"base_model": "toy", "prompt": PROMPT, "sampling_params": {"max_tokens": 2}}
        future = await client.post("asample", body)
        await is_asked.wait()
        for _ in range(2):
            cancelled = await http.post(
                "/api/v1/cancel_future", json={"request_id": future["request_id"]}
            )
            assert cancelled.status_code == 204, cancelled.text
        answer = await client.result(future)
        assert (answer["category"], "cancelled" in answer["error"]) == ("user", True)


async def test_a_step_cannot_be_cancelled(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        waiting = await client.step(2)
        body = {"request_id": waiting["request_id"]}
        assert (await http.post("/api/v1/cancel_future", json=body)).status_code == 204
        await client.step(1)
        assert (await client.result(waiting))["metrics"]["step:max"] == 2.0


async def test_clients_of_a_sampler_have_numbers_of_their_own(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        body = {"session_id": client.session, "sampling_session_seq_id": 0, "base_model": "toy"}
        sampler = (await client.post("create_sampling_session", body))["sampling_session_id"]
        named = {"sampling_session_id": sampler}
        joined = [await client.post("join_sampling_session", named) for _ in range(3)]
        assert [one["client_counter"] for one in joined] == [1, 2, 3]
