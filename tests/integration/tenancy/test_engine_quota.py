"""The quota of engines, set and felt through the front door; the test is the agent's machine."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from tests.support.agents.wire_agent import WireAgent
from tests.support.clients.trust import trusted
from tests.support.processes.front_door import MODEL, import_model
from tests.support.services.front import MODULES, Front, running_front
from tests.support.waiting import until

from windlass.inference.domain import PATIENCE_SECONDS
from windlass.inference.store import wants


@dataclass
class Tenant:
    """A project of the owner's organization."""

    front: Front
    project: str

    async def import_models(self, *names: str) -> None:
        headers = {
            "Authorization": f"Bearer {self.front.owner_key}", "OpenAI-Project": self.project
        }  # fmt: skip
        with httpx.Client(base_url=self.front.url, headers=headers, verify=trusted()) as http:
            for name in names:
                files = {**MODEL, "generation_config.json": b'{"max_length": %d}' % len(name)}
                done = await asyncio.to_thread(import_model, http, name, files)
                assert done.status_code == 200, done.text

    async def chat(self, model: str) -> dict[str, Any]:
        """Asks a model, which is cold; returns the error."""
        body = {"model": model, "messages": [{"role": "user", "content": "Ahoy?"}]}
        async with self.front.http(**{"OpenAI-Project": self.project}) as http:
            answer = await http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 503
        error: dict[str, Any] = answer.json()["error"]
        assert error["code"] == "model_not_ready"
        return error

    async def is_refused(self, model: str, sentence: str) -> None:
        """Waits until a request for the model is told this, while all others are in use."""
        await self.chat(model)
        async with self.front.app.database.begin() as connection:
            past = {"since": wants.c.since - PATIENCE_SECONDS}
            await connection.execute(wants.update().values(past))

        async def told() -> str:
            async with self.front.app.database.begin() as connection:
                now = sa.func.extract("epoch", sa.func.clock_timestamp())
                await connection.execute(wants.update().values(used_at=now))
            message: str = (await self.chat(model))["message"]
            return message

        await until(told, holds=lambda message: sentence in message)


async def put_bound(front: Front, bound: int, project: str = "") -> None:
    async with front.http() as http:
        body = {"bound": bound, "project_id": project}
        (await http.put("/v1/quotas/engines", json=body)).raise_for_status()


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    modules = (*MODULES[:-1], "inference", MODULES[-1])
    # A refusal that is there already is told after five seconds without a newer one.
    inference = {"hold_seconds": 6.0}
    async with running_front(
        database_url, tmp_path / "data", modules, inference=inference
    ) as front:
        yield front


async def test_a_project_has_as_many_engines_as_its_quota(front: Front) -> None:
    agent = await WireAgent.join(front.app)
    async with front.http() as http:
        titles = [{"title": "one"}, {"title": "two"}]
        made = [(await http.post("/v1/projects", json=title)).json()["id"] for title in titles]
    one, two = (Tenant(front, project) for project in made)
    await one.import_models("first", "second")
    await two.import_models("third")
    await put_bound(front, 1, one.project)
    await one.chat("first")
    await agent.next_engine("first")
    await one.is_refused("second", "The project's 1 engines are in use, which is its quota.")
    assert not agent.engines("second")
    # Another project has its own.
    await two.chat("third")
    await agent.next_engine("third")
    # The organization has a bound over its projects. It comes first: the second model is wanted.
    await put_bound(front, 2)
    await put_bound(front, 2, one.project)
    await one.is_refused("second", "The organization's 2 engines are in use, which is its quota.")
    assert not agent.engines("second")
    await put_bound(front, 3)
    await one.chat("second")
    await agent.next_engine("second")
    assert len(agent.engines()) == 3
    await agent.leave()
