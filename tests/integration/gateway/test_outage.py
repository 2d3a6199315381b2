"""Inference by known keys goes on for a while when Postgres is away, if an operator says so."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from aiohttp import web
from sqlalchemy.engine import make_url
from tests.support.environments import postgres
from tests.support.services import front as stand
from tests.support.services.front import Engine, Front, running_engine, running_front
from tests.support.waiting import soon, stays, until

from windlass.core.db import Database
from windlass.embedded_postgres import EmbeddedPostgres
from windlass.gateway.authentication import active_requests
from windlass.metrics.gateway import UNCHECKED
from windlass.migrations import migrate
from windlass.users.keys.store import KeyStore

WORD_SECONDS = 0.02
UNKNOWN = "wl-" + "x" * 43


@dataclass
class Away:
    """A Postgres of the test's own, and the path by which the services reach it."""

    server: EmbeddedPostgres
    url: str
    path: Path

    @property
    def services_url(self) -> str:
        return make_url(self.url).update_query_dict({"host": str(self.path)}).render_as_string()

    async def stop(self) -> None:
        """Ends the server and the way to it."""
        self.path.unlink()
        await self.server.stop()

    async def start(self) -> None:
        """Starts it again, where nobody but the test finds it yet."""
        await self.server.start()

    def come_back(self) -> None:
        """Lets the services find it."""
        self.path.symlink_to(str(make_url(self.url).query["host"]))


@pytest.fixture
async def away() -> AsyncIterator[Away]:
    with postgres.reachable_folder() as folder:
        server = EmbeddedPostgres(folder / "postgres", settings=postgres.SETTINGS)
        url = await server.start()
        try:
            await asyncio.to_thread(migrate, url)
            away = Away(server, url, folder / "line")
            away.come_back()
            yield away
        finally:
            await server.stop()


@asynccontextmanager
async def serving(away: Away, data: Path, grace: float) -> AsyncIterator[tuple[Front, Engine]]:
    auth = {"outage_grace_seconds": grace}
    async with (
        running_front(away.services_url, data, auth=auth) as front,
        running_engine() as engine,
    ):
        front.board.pin("toy", engine.address)
        front.board.pin("cold")
        try:
            yield front, engine
        finally:
            if not away.path.is_symlink():
                await away.start()
                away.come_back()


async def chat(front: Front, key: str, model: str = "toy") -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    async with front.http(key) as http:
        return await http.post("/v1/chat/completions", json=body)


async def new_key(front: Front) -> tuple[str, str, str]:
    """A key's secret, its id and its organization."""
    async with front.http() as http:
        made = (await http.post("/v1/api_keys", json={"name": "k"})).json()
        me = (await http.get("/v1/me")).json()
    return made["value"], made["id"], me["organization"]["id"]


async def readiness(front: Front) -> tuple[int, str]:
    async with front.http() as http:
        answer = await http.get("/readyz")
    return answer.status_code, answer.json()["status"]


async def test_known_keys_outlast_an_outage_and_a_revoked_one_ends_with_it(
    away: Away, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_requests, "DOUBT_SECONDS", 0.3)
    async with serving(away, tmp_path / "data", 600) as (front, _):
        key, _, _ = await new_key(front)
        doomed, doomed_id, organization = await new_key(front)
        for each in (key, doomed):
            assert (await chat(front, each)).status_code == 200
        assert await readiness(front) == (200, "ok")
        with structlog.testing.capture_logs() as logs:
            await away.stop()
            answers = [await chat(front, key) for _ in range(3)]
            assert [answer.status_code for answer in answers] == [200] * 3
            refused = await chat(front, UNKNOWN)
            assert refused.status_code == 503
            said = "API keys cannot be checked now; try again."
            assert refused.json()["error"]["message"] == said
            async with front.http(key) as http:

                async def refusal() -> str:
                    return str((await http.get("/v1/models")).json()["error"]["message"])

                # For less than a second the key still counts, and the list needs the database.
                await until(refusal, holds=lambda message: message == said)
            # Nobody can ask for an engine.
            assert (await chat(front, key, "cold")).status_code == 503
            assert await readiness(front) == (200, "degraded")
            assert UNCHECKED._value.get() == 1
            await away.start()
            database = Database(away.url)
            await KeyStore(database).revoke(organization, doomed_id)
            await database.close()
            assert (await chat(front, doomed)).status_code == 200
            away.come_back()
            still = 0
            async with soon(2):
                while (ended := await chat(front, doomed)).status_code == 200:
                    still += 1
            assert ended.json()["error"]["code"] == "invalid_api_key"
            assert (await chat(front, key)).status_code == 200
            await until(lambda: readiness(front), holds=lambda found: found == (200, "ok"))
            await until(lambda: UNCHECKED._value.get() == 0)
        # On a busy machine the beats may be late once more, which is another grace.
        graces = [one for one in logs if one["event"].startswith("key_grace_")]
        assert [one["event"] for one in graces[:2]] == ["key_grace_began", "key_grace_ended"]
        ended_graces = [one for one in graces if one["event"] == "key_grace_ended"]
        assert {one["reason"] for one in ended_graces} == {"answered"}
        # The request for an engine and the one with the revoked key, whenever the grace began.
        assert sum(one["requests"] for one in ended_graces) >= 2
        async with front.http() as http:
            query = {"start_time": int(time.time()) - 3600}

            async def counted() -> int:
                found = (await http.get("/v1/usage", params=query)).json()["data"]
                rows = [row for bucket in found for row in bucket["results"]]
                return sum(row["num_model_requests"] for row in rows)

            # Two before, three and one in the outage, one after, and those of the doomed key.
            assert await until(counted, holds=lambda count: count >= 7 + still) == 7 + still


async def test_a_running_answer_outlasts_it_too(
    away: Away, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_requests, "DOUBT_SECONDS", 0.1)

    async def endless(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await stand.begin(request)
        while True:
            await response.write(stand.sse(stand.chunk("word")))
            await asyncio.sleep(WORD_SECONDS)

    body = {"model": "toy", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with serving(away, tmp_path / "data", 600) as (front, engine):
        engine.handler = endless
        async with (
            asyncio.timeout(60),
            front.http() as http,
            http.stream("POST", "/v1/chat/completions", json=body) as response,
        ):
            pieces = response.aiter_bytes()
            assert b"word" in await anext(pieces)
            await away.stop()

            async def goes_on() -> bool:
                return b"word" in await anext(pieces)

            await stays(goes_on, 2.0)


@pytest.mark.parametrize("grace", [0, 4.0])
async def test_without_a_grace_and_after_it_nobody_gets_in(
    away: Away, tmp_path: Path, grace: float
) -> None:
    async with serving(away, tmp_path / "data", grace) as (front, _):
        assert (await chat(front, front.owner_key)).status_code == 200
        with structlog.testing.capture_logs() as logs:
            await away.stop()
            # What was heard less than a second ago still counts, and some ask during the grace.
            refused = await until(
                lambda: chat(front, front.owner_key),
                10,
                holds=lambda answer: answer.status_code != 200,
            )
            assert refused.status_code == 503
            assert (await readiness(front)) == (503, "not ready")
        ends = [one["reason"] for one in logs if one["event"] == "key_grace_ended"]
        assert ends == (["expired"] if grace else [])
