"""Traffic that trains the engine which answers it: openai-python, the platform's own services, and
an agent of the test with an engine that says what it is told.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import sqlalchemy as sa
from openai import AsyncOpenAI
from tests.integration.tuning.in_engine.taught_engine import asked
from tests.integration.tuning.in_engine.test_runs_in_engines import (
    MODEL,
    Stage,
    enabled,
    serving,
    staged,
)
from tests.support.processes.shell import PROGRAM
from tests.support.services.filled_tenant import ok
from tests.support.waiting import until

from windlass.inference.feeds.store import answers, feeds
from windlass.inference.feeds.work import FeedWork
from windlass.inference.loads import CLOCK
from windlass.inference.trainings.store import EngineTrainingStore

PATH = f"/v1/engines/{MODEL}/feed"
GRADER = {
    "type": "string_check",
    "name": "wanted",
    "input": "{{sample.output_text}}",
    "reference": "{{item.metadata.wanted}}",
    "operation": "eq",
}


@dataclass
class Room:
    """A project, and two keys of it."""

    stage: Stage
    project: str
    chosen: dict[str, Any]
    other: dict[str, Any]
    http: httpx.AsyncClient

    async def put(self, **words: Any) -> Any:
        return await ok(self.ask("PUT", **words))

    async def ask(self, method: str, **words: Any) -> httpx.Response:
        usual: dict[str, Any] = {"key_ids": [self.chosen["id"]], "grader": GRADER}
        usual |= {"least_score": 1, "hourly": 2, "batch": 2, "optimizer": "sgd"}
        usual |= {"learning_rate": 0.5}
        return await self.http.request(method, PATH, json=usual | words)

    async def retain(self, kind: str) -> Any:
        path = f"/v1/organization/projects/{self.project}/data_retention"
        return await ok(self.http.post(path, json={"retention_type": kind}))

    async def feed(self) -> Any:
        return await ok(self.http.get(PATH))

    def openai(self, key: dict[str, Any] | None = None) -> AsyncOpenAI:
        return self.stage.front.openai((key or self.chosen)["value"])

    async def say(self, text: str, wanted: str = "", **words: Any) -> str:
        """Asks with consent; returns how many answers were kept."""
        usual: dict[str, Any] = {"store": True, "metadata": {"wanted": wanted or text}}
        raw = await self.openai(words.pop("key", None)).chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "user", "content": text}], **(usual | words)
        )
        answer = raw.parse()
        assert answer.choices[0].message.content == text
        assert "token_ids" not in raw.text
        return str(raw.headers.get("x-windlass-kept", ""))

    async def waits(self, **numbers: int) -> Any:
        async def there() -> Any:
            found = await self.feed()
            return found if all(found[name] == value for name, value in numbers.items()) else None

        return await until(there)

    async def says(self, words: str) -> None:
        async def there() -> bool:
            return words in (await self.feed())["message"]

        await until(there)

    async def later(self, **values: Any) -> None:
        """Lets time pass for a feed that rests."""

        async def rests() -> bool:
            async with self.stage.front.app.database.autocommit() as connection:
                busy = sa.or_(feeds.c.lease_owner.is_not(None), feeds.c.due_at <= CLOCK)
                return not (await connection.execute(sa.select(sa.exists().where(busy)))).scalar()

        await until(rests)
        await self.change(due_at=0, **values)

    async def change(self, **values: Any) -> None:
        """Changes the feed's row."""
        async with self.stage.front.app.database.begin() as connection:
            await connection.execute(feeds.update().values(values))
        self.stage.front.app.wake.touch("feeds")

    async def rows(self) -> int:
        async with self.stage.front.app.database.autocommit() as connection:
            query = sa.select(sa.func.count()).select_from(answers)
            return int((await connection.execute(query)).scalar_one())


async def made_key(http: httpx.AsyncClient, project: str, name: str) -> dict[str, Any]:
    body = {"name": name, "project_id": project, "role": "project_member"}
    found: dict[str, Any] = await ok(http.post("/v1/api_keys", json=body))
    return found


@pytest.fixture
async def room(database_url: str, tmp_path: Path) -> AsyncIterator[Room]:
    async with staged(database_url, tmp_path) as stage, stage.front.http() as http:
        await enabled(stage, tmp_path / "model")
        project = (await ok(http.get("/v1/me")))["principal"]["project_id"]
        chosen, other = [await made_key(http, project, name) for name in ("chosen", "other")]
        yield Room(stage, project, chosen, other, http)


@pytest.fixture
async def fed(room: Room) -> Room:
    await room.retain("none")
    await room.put()
    return room


async def refused(call: Any) -> tuple[str | None, str | None]:
    with pytest.raises(openai.BadRequestError) as caught:
        await call
    return caught.value.code, caught.value.param


async def test_consented_answers_that_are_good_enough_train_once_within_the_hour(
    fed: Room,
) -> None:
    assert [await fed.say("ab"), await fed.say("pear", "apple"), await fed.say("cde")] == ["1"] * 3
    # Engines know of no storing, and tell token ids to nobody who did not ask.
    assert all(one["return_token_ids"] for one in fed.stage.engine.completions)
    assert not any("store" in one for one in fed.stage.engine.completions)
    body = await asked(fed.stage.engine, 0)
    ids = [list(map(ord, text)) for text in ("ab", "cde")]
    assert sorted(one["continuation_ids"] for one in body["samples"]) == ids
    assert {tuple(one["context_ids"]) for one in body["samples"]} == {(1, 2, 3)}
    assert (body["learning_rate"], body["optimizer"], body["batch"]) == (0.5, "sgd", 2)
    found = await fed.waits(kept=3, refused=1, trained=2, waiting=0)
    assert (found["object"], found["grader"], found["removed"]) == ("engine.feed", GRADER, 0)
    # Two in an hour: what comes beyond waits.
    for text in ("f", "g"):
        assert await fed.say(text) == "1"

    await fed.says("in an hour")
    assert len(fed.stage.engine.bodies) == 1
    # The hour is over.
    await fed.later(spent=[])
    assert len((await asked(fed.stage.engine, 1))["samples"]) == 2
    await fed.waits(trained=4, waiting=0)
    assert await fed.rows() == 0
    trainings = (await ok(fed.http.get("/v1/engines/trainings")))["data"]
    assert [one["total_steps"] for one in trainings] == [1, 1]


async def test_completions_feed_as_chats_do(fed: Room) -> None:
    await fed.put(grader=GRADER | {"reference": "{{item.prompt}}", "operation": "ne"})
    raw = await fed.openai().completions.with_raw_response.create(
        model=MODEL, prompt=[7, 8], max_tokens=2, n=1, extra_body={"store": True}
    )
    # The engine of this test says no text there, so that nothing is to be graded.
    assert raw.headers["x-windlass-kept"] == "0"


async def test_nothing_is_kept_without_consent_choice_and_retention(fed: Room) -> None:
    unsupported = "unsupported_parameter", "store"
    assert await fed.say("a", store=False) == ""
    assert await fed.say("a", store=None) == ""
    assert await refused(fed.say("a", key=fed.other)) == unsupported
    # The owner's key is one of the organization, and was not chosen.
    owner = {"value": fed.stage.front.owner_key}
    assert await refused(fed.say("a", key=owner)) == unsupported
    stream = fed.openai().chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "a"}], store=True, stream=True
    )
    assert await refused(stream) == ("unsupported_parameter", "stream")
    await fed.retain("organization_default")
    assert await refused(fed.say("a")) == unsupported
    await fed.retain("none")
    await ok(fed.http.put(f"/v1/servings/{MODEL}", json=serving("")))
    assert await refused(fed.say("a")) == unsupported
    assert await fed.rows() == 0
    assert (await fed.feed())["kept"] == 0


async def test_what_can_be_no_feed_says_why(room: Room) -> None:
    async def why(**words: Any) -> tuple[int, str | None, str | None]:
        answer = await room.ask("PUT", **words)
        error = answer.json()["error"]
        return answer.status_code, error["code"], error["param"]

    assert await why() == (409, "zero_data_retention", None)
    await room.retain("none")
    sibling = (await ok(room.http.post("/v1/projects", json={"title": "sibling"})))["id"]
    foreign = await made_key(room.http, sibling, "foreign")
    for key in (foreign["id"], "key_none"):
        assert await why(key_ids=[key]) == (404, "key_not_found", "key_ids")
    assert (await why(grader={"type": "magic"}))[2] == "grader.type"
    judge = {"type": "score_model", "name": "j", "model": "none", "range": [0, 1]}
    judge |= {"input": [{"role": "user", "content": "{{sample.output_text}}"}]}
    assert await why(grader=judge) == (400, "invalid_value", "grader.model")
    assert (await why(hourly=1))[2] == "hourly"
    assert (await why(key_ids=[room.chosen["id"]] * 2))[2] == "key_ids"
    await ok(room.http.put(f"/v1/servings/{MODEL}", json=serving("")))
    assert await why() == (409, "training_not_enabled", "model")
    assert (await room.ask("GET")).status_code == 404


async def test_a_feed_is_its_project_s_alone(fed: Room) -> None:
    sibling = (await ok(fed.http.post("/v1/projects", json={"title": "sibling"})))["id"]
    foreign = await made_key(fed.http, sibling, "foreign")
    async with fed.stage.front.http(foreign["value"]) as http:
        for method in ("GET", "PUT", "DELETE"):
            body = {"key_ids": [foreign["id"]], "grader": GRADER, "least_score": 1}
            answer = await http.request(method, PATH, json=body if method == "PUT" else None)
            assert answer.status_code == 404, method
        assert (await ok(http.get("/v1/engines/feeds")))["data"] == []
    with pytest.raises(openai.NotFoundError):
        await fed.say("a", key=foreign)
    listed = (await ok(fed.http.get("/v1/engines/feeds")))["data"]
    assert [(one["model"], one["grader"]) for one in listed] == [(MODEL, None)]
    async with fed.stage.front.http(fed.other["value"]) as http:
        assert (await ok(http.get(PATH)))["kept"] == 0


async def test_the_command_sets_shows_lists_and_deletes(room: Room, tmp_path: Path) -> None:
    await room.retain("none")
    document = tmp_path / "feed.json"
    body = {"key_ids": [room.chosen["id"]], "grader": GRADER, "least_score": 1}
    document.write_text(json.dumps(body))
    environment = os.environ | {
        "WINDLASS_BASE_URL": room.stage.front.url,
        "WINDLASS_API_KEY": room.chosen["value"],
    }

    async def run(*words: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, "engines", "feed", *words, "-o", "json",
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        assert process.returncode == 0, err
        return json.loads(out)

    made = await run("set", MODEL, str(document))
    assert (made["hourly"], made["batch"], made["optimizer"]) == (64, 8, "apollo-mini")
    assert await run("show", MODEL) == made
    assert [one["id"] for one in await run("list")] == [made["id"]]
    assert (await run("delete", MODEL))["deleted"]
    assert await run("list") == []


async def test_what_a_feed_rests_on_ends_what_it_has(fed: Room) -> None:
    await fed.put(batch=2, key_ids=[fed.chosen["id"], fed.other["id"]])
    await fed.say("ab")
    await fed.waits(kept=1, waiting=1)
    # Its key has ended.
    await ok(fed.http.delete(f"/v1/api_keys/{fed.chosen['id']}"))
    await fed.later()
    found = await fed.waits(waiting=0, removed=1)
    assert found["key_ids"] == [fed.other["id"]]
    # The project keeps nothing any more.
    await fed.say("cd", key=fed.other)
    await fed.retain("zero_data_retention")
    await fed.later()
    await fed.waits(waiting=0, removed=2)
    await fed.says("zero data retention")
    # Nobody names it any more.
    await fed.retain("none")
    await fed.say("ef", key=fed.other)
    assert await fed.rows() == 1
    deleted = await ok(fed.http.delete(PATH))
    assert deleted == {"id": MODEL, "object": "engine.feed", "deleted": True}
    assert await fed.rows() == 0
    assert fed.stage.engine.bodies == []


@pytest.mark.parametrize(
    ("where", "name"),
    [(EngineTrainingStore, "create"), (FeedWork, "finish"), (FeedWork, "release")],
)
async def test_a_worker_that_is_killed_trains_nothing_twice(
    fed: Room, monkeypatch: pytest.MonkeyPatch, where: type[Any], name: str
) -> None:
    step, killed = getattr(where, name), asyncio.Event()

    async def kill(self: Any, *given: Any, **named: Any) -> Any:
        if killed.is_set():
            return await step(self, *given, **named)
        if name == "release" and not (await fed.feed())["trained"]:
            return await step(self, *given, **named)
        killed.set()
        raise RuntimeError("the worker is killed")

    monkeypatch.setattr(where, name, kill)
    await fed.put(hourly=10)
    await fed.say("ab")
    await fed.say("cd")
    await asyncio.wait_for(killed.wait(), 30)
    # What came meanwhile is of another training.
    for text in ("ef", "gh"):
        await fed.say(text)
    await fed.change(lease_until=None, due_at=0)
    await fed.waits(trained=4, waiting=0)
    await asked(fed.stage.engine, 1)
    seen = [one["continuation_ids"] for body in fed.stage.engine.bodies for one in body["samples"]]
    assert sorted(seen) == [list(map(ord, text)) for text in ("ab", "cd", "ef", "gh")]
