"""Keys for some models alone, on every path that names one, and nobody who gets around them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.services.front import Engine, Front, begin, running_engine, running_front
from tests.support.services.member_keys import SECONDS, Key, project
from tests.support.waiting import soon, until

from windlass.inference_api.routes import ENGINE_ROUTES

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
BASE, TUNED, OTHER = "toy", "ft:toy:acme:pirate:1", "giant"
PATHS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HI},
    "/v1/completions": {"prompt": "a"},
    "/v1/embeddings": {"input": "a"},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/tokenize": {"prompt": "a"},
}


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def front(database_url: str, tmp_path: Path, engine: Engine) -> AsyncIterator[Front]:
    async with running_front(database_url, tmp_path / "data") as front:
        for model in (BASE, TUNED, OTHER):
            front.board.pin(model, engine.address)
        await until(lambda: chat(Key(front, "", front.owner_key, {}), OTHER), holds=_is_ok)
        yield front


@pytest.fixture
async def owner(front: Front) -> Key:
    return Key(front, "", front.owner_key, {})


def _is_ok(answer: httpx.Response) -> bool:
    return answer.status_code == 200


async def chat(key: Key, model: str) -> httpx.Response:
    return await key.ask("POST", CHAT, json={"model": model, "messages": HI})


async def change(by: Key, key: Key, *models: str) -> httpx.Response:
    return await by.ask("PATCH", f"/v1/api_keys/{key.id}", json={"models": models})


def refusal(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return {"status": answer.status_code, **error}


def refused(model: str, param: str = "model", status: int = 404) -> dict[str, Any]:
    """OpenAI's answer about a model that one has no access to."""
    return {
        "status": status,
        "message": f"The model {model!r} does not exist or you do not have access to it.",
        "type": "invalid_request_error",
        "param": param,
        "code": "model_not_found",
    }


async def listed(key: Key) -> list[str]:
    return [one["id"] for one in (await key.ask("GET", "/v1/models")).json()["data"]]


async def make(owner: Key, *models: str, **body: Any) -> Key:
    return await owner.make("organization_owner", models=models, **body)


async def test_every_path_of_engines_refuses_other_models(owner: Key, engine: Engine) -> None:
    assert PATHS.keys() == ENGINE_ROUTES
    key = await make(owner, TUNED)
    engine.requests.clear()
    for path, body in PATHS.items():
        for model in (OTHER, "nothing-of-this-name"):
            answer = await key.ask("POST", path, json={"model": model, **body})
            assert refusal(answer) == refused(model), path
    assert not engine.requests
    # Its own name decides, for an adapter as for its base.
    assert _is_ok(await chat(key, TUNED))
    assert refusal(await chat(key, BASE)) == refused(BASE)
    of_base = await make(owner, BASE)
    assert _is_ok(await chat(of_base, BASE))
    assert refusal(await chat(of_base, TUNED)) == refused(TUNED)


async def test_a_refusal_is_that_of_a_model_that_is_not_there(owner: Key) -> None:
    """The service is not even asked, so that time tells nothing either; no name is suggested."""
    key = await make(owner, "toy")
    answers = [refusal(await chat(key, name)) for name in ("gian", OTHER)]
    assert answers == [refused("gian"), refused(OTHER)]
    inside = await make(owner, "gian*")
    assert refusal(await chat(inside, "giants")) == refused("giants")


async def test_graders_ask_no_other_model(owner: Key) -> None:
    key = await make(owner, BASE, scopes=["jobs.write", "inference.invoke"])
    grader = {
        "type": "score_model",
        "name": "g",
        "model": OTHER,
        "input": [{"role": "user", "content": "{{sample.output_text}}"}],
        "range": [0, 1],
    }
    body = {"grader": grader, "model_sample": "x", "item": {}}
    answer = await key.ask("POST", "/v1/fine_tuning/alpha/graders/run", json=body)
    assert refusal(answer) == refused(OTHER)


async def test_jobs_begin_with_no_other_model(owner: Key) -> None:
    key = await make(owner, BASE)
    for model in (OTHER, TUNED):
        body = {"model": model, "training_file": "file-none"}
        answer = await key.ask("POST", "/v1/fine_tuning/jobs", json=body)
        assert refusal(answer) == refused(model, status=400)


async def test_models_are_listed_and_touched_within_the_scope_alone(owner: Key) -> None:
    assert sorted(await listed(owner)) == sorted([BASE, TUNED, OTHER])
    key = await make(owner, "ft:toy:*")
    assert await listed(key) == [TUNED]
    paged = await key.ask("GET", "/v1/models", params={"limit": 1})
    assert not paged.json()["has_more"]
    # Nor does a cursor tell whether there is a model of its name.
    cursors = [
        await key.ask("GET", "/v1/models", params={"after": name}) for name in (OTHER, "nothing")
    ]
    assert refusal(cursors[0]) == refusal(cursors[1])
    assert cursors[0].status_code == 400
    assert _is_ok(await key.ask("GET", f"/v1/models/{TUNED}"))
    for method in ("GET", "DELETE"):
        answer = await key.ask(method, f"/v1/models/{OTHER}")
        assert refusal(answer) == refused(OTHER)
    assert OTHER in await listed(owner)
    file = {"path": "config.json", "bytes": 1, "sha256": "0" * 64}
    for name in (OTHER, "new"):
        body = {"id": name, "files": [file]}
        assert refusal(await key.ask("POST", "/v1/models/imports", json=body)) == refused(
            name, "id"
        )
    permissions = f"/v1/fine_tuning/checkpoints/{OTHER}/permissions"
    said = [(await one.ask("GET", permissions)).json() for one in (key, owner)]
    assert said[0] == said[1]


async def test_letters_count_as_they_are_written(owner: Key) -> None:
    key = await make(owner, "TOY", "gian_*")
    for model in (BASE, OTHER, "t\u043ey"):
        assert (await chat(key, model)).status_code == 404
    assert await listed(key) == []


async def test_what_is_made_with_a_key_is_for_no_more_models(owner: Key) -> None:
    room = await project(owner)
    assert (await owner.try_make("organization_owner", models=["*"])).status_code == 400
    key = await make(owner, "ft:toy:*", BASE)
    child = await key.make("project_owner", project_id=room)
    assert child.body["models"] == ["ft:toy:*", BASE]
    less = await key.make("project_owner", project_id=room, models=["ft:toy:acme:*"])
    for models in ([OTHER], ["ft:*"], ["ft:toy"], ["toy*"]):
        answer = await key.try_make(models=models)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "models")
        for who, whom in ((key, key), (key, less), (less, less)):
            answer = await change(who, whom, *models)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "models")
    # Nor does one that says any of them all.
    assert (await change(key, key)).status_code == 400
    assert (await change(key, less, "ft:toy:*")).status_code == 200


async def test_a_change_is_effective_within_a_second_and_below(owner: Key) -> None:
    key = await make(owner, BASE, "ft:*")
    child, other = await key.make("organization_owner"), await make(key, BASE)
    assert _is_ok(await chat(child, TUNED))
    assert _is_ok(await change(owner, key, "ft:toy:*"))

    async def answers() -> list[int]:
        asked = [chat(child, BASE), chat(child, TUNED), chat(key, BASE)]
        return [one.status_code for one in await asyncio.gather(*asked)]

    await until(answers, SECONDS, holds=lambda got: got == [404, 200, 404])
    # Nothing is left of one that had another model alone.
    assert "revoked" in await other.ends_within_a_second()
    assert (await child.ask("GET", "/v1/me")).json()["key"]["models"] == ["ft:toy:*"]
    assert _is_ok(await change(owner, key))
    assert (await child.ask("GET", "/v1/me")).json()["key"]["models"] == ["ft:toy:*"]


async def test_two_changes_at_once_leave_nothing_wider_below(owner: Key) -> None:
    key = await make(owner, "ft:*", BASE)
    child = await make(key, "ft:*", BASE)
    changes = [change(owner, key, BASE), change(key, child, "ft:*", BASE)] * 4
    await asyncio.gather(*changes, return_exceptions=True)
    assert (await child.ask("GET", "/v1/me")).json()["key"]["models"] == [BASE]


async def test_an_answer_ends_when_its_key_is_for_less(owner: Key, engine: Engine) -> None:
    async def endless(request: Any, body: dict[str, Any]) -> Any:
        await begin(request)
        await asyncio.Event().wait()

    key = await make(owner, BASE, OTHER)
    assert _is_ok(await chat(key, BASE))
    engine.handler = endless
    body = {"model": OTHER, "messages": HI, "stream": True}
    asking = asyncio.create_task(key.ask("POST", CHAT, json=body))
    await until(lambda: any(one.get("stream") for one in engine.requests))
    assert _is_ok(await change(owner, key, BASE))
    async with soon(2):
        await engine.left.wait()
    await asyncio.wait([asking])
