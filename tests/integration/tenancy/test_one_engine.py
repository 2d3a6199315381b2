"""Requests for engines of the kind `vllm`: checked, salted by organization, and counted."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from aiohttp import web
from tests.support.services import front as stand
from tests.support.services.front import Engine, Front, running_engine, running_front
from tests.support.waiting import until

from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.keyring import open_keyring
from windlass.gateway.inference.head import CacheSalts

HI: Any = [{"role": "user", "content": "hi"}]
CHATS = "/v1/chat/completions"


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(
        database_url, tmp_path / "data", inference={"hold_seconds": 3}
    ) as front:
        yield front


@pytest.fixture
async def engine(front: Front) -> AsyncIterator[Engine]:
    async with running_engine() as engine:
        front.board.pin("toy", engine.address, engine="vllm", cache_salt=True)
        async with front.http() as http:

            async def known() -> bool:
                body = {"model": "toy", "messages": HI}
                return (await http.post(CHATS, json=body)).status_code == 200

            await until(known)
        engine.requests.clear()
        yield engine


async def test_what_steers_the_engine_does_not_reach_it(front: Front, engine: Engine) -> None:
    async with front.http() as http:
        steering: list[dict[str, Any]] = [{"cache_salt": "x"}, {"priority": -1}, {"vllm_xargs": {}}]
        for wrong in steering:
            answer = await http.post(CHATS, json={"model": "toy", "messages": HI, **wrong})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "unknown_parameter")
            assert error["param"] in wrong
    assert not engine.requests


async def test_its_own_parameters_reach_it(front: Front, engine: Engine) -> None:
    extra = {"min_p": 0.1, "structured_outputs": {"choice": ["a", "b"]}}
    client = front.openai()
    await client.chat.completions.create(model="toy", messages=HI, extra_body=extra)
    (asked,) = engine.requests
    assert {name: asked[name] for name in extra} == extra


async def test_organizations_are_salted_apart_and_projects_of_one_are_not(
    front: Front, engine: Engine
) -> None:
    async with front.http() as http:
        room = (await _made(http, "/v1/projects", title="Side"))["id"]
        other = (await _made(http, "/v1/organizations", title="Bolt"))["id"]
        keys = [front.owner_key, await _key(http, "project_member", project_id=room)]
        headers = {"OpenAI-Organization": other}
        owner = await _key(http, "organization_owner", headers=headers)
    async with front.http(owner) as http:
        theirs = (await _made(http, "/v1/projects", title="Theirs"))["id"]
        keys.append(await _key(http, "project_member", project_id=theirs))
    for key in keys:
        client = front.openai(key)
        await client.chat.completions.create(model="toy", messages=HI)
        stream = await client.chat.completions.create(model="toy", messages=HI, stream=True)
        assert [chunk async for chunk in stream]
        await client.completions.create(model="toy", prompt="x")
    salts = [asked["cache_salt"] for asked in engine.requests]
    ours, same, others = (set(salts[at : at + 3]) for at in (0, 3, 6))
    assert len(ours) == len(others) == 1
    assert ours == same != others
    assert {asked["priority"] for asked in engine.requests} == {0}
    assert front.owner_key not in str(salts)


async def test_another_gateway_of_the_installation_writes_the_same_salt(
    front: Front, engine: Engine, database_url: str, tmp_path: Path
) -> None:
    await front.openai().chat.completions.create(model="toy", messages=HI)
    file = tmp_path / "data" / "keys" / "master.key"
    settings = Settings(data_dir=tmp_path / "other", master_key={"file": file})
    database = Database(database_url, pool_size=1)
    try:
        salts = CacheSalts((await open_keyring(settings, database)).derive("cache salts"))
    finally:
        await database.close()
    async with front.http() as http:
        organization = (await http.get("/v1/me")).json()["organization"]["id"]
    assert engine.requests[-1]["cache_salt"] == salts.of(organization)


async def test_the_builtin_engine_gets_no_salt(front: Front, engine: Engine) -> None:
    front.board.pin("plain", engine.address)
    await front.openai().chat.completions.create(model="plain", messages=HI)
    assert engine.requests == [{"model": "plain", "messages": HI}]


async def test_an_agent_that_denies_salts_gets_them_all_the_same(
    front: Front, engine: Engine
) -> None:
    front.board.pin("denied", engine.address, engine="vllm", cache_salt=False)
    await front.openai().chat.completions.create(model="denied", messages=HI)
    (asked,) = engine.requests
    assert len(asked["cache_salt"]) == 64
    assert asked["priority"] == 0


async def test_a_stream_of_several_answers_that_breaks_off_is_charged_for_all(
    front: Front, engine: Engine
) -> None:
    async def breaks(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await stand.begin(request)
        for number in range(1, 4):
            for index in range(body["n"]):
                chunk = stand.chunk("a word", usage=stand.usage(5, number))
                chunk["choices"][0]["index"] = index
                await response.write(stand.sse(chunk))
        assert request.transport is not None
        request.transport.close()
        return response

    engine.handler = breaks
    create = front.openai().chat.completions.create
    stream = await create(model="toy", messages=HI, stream=True, n=4)
    with pytest.raises(openai.APIError):
        [chunk async for chunk in stream]
    async with front.http() as http:

        async def counted() -> tuple[int, int]:
            query = {"start_time": int(time.time()) - 3600, "limit": 31}
            page = (await http.get("/v1/usage", params=query)).json()
            found = [result for bucket in page["data"] for result in bucket["results"]]
            return (
                sum(one["input_tokens"] for one in found),
                sum(one["output_tokens"] for one in found),
            )

        # The fixture's request, and ours.
        await until(counted, holds=lambda tokens: tokens == (7 + 5, 3 + 4 * 3))


async def test_embeddings_of_an_engine_without_them_are_refused_at_once(
    front: Front, engine: Engine
) -> None:
    with pytest.raises(openai.NotFoundError, match="does not support /v1/embeddings"):
        await front.openai().embeddings.create(model="toy", input="x")
    assert not engine.requests


async def test_details_of_usage_pass_and_other_models_names_do_not(
    front: Front, engine: Engine
) -> None:
    details = {
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        message = {"role": "assistant", "content": "one"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {**stand.usage(7, 3), **details}
        return web.json_response(
            {"id": "c", "object": "x", "created": 1, "model": "toy", "choices": [choice],
             "usage": usage}
        )  # fmt: skip

    async def refuse(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        said = "The model `toy` does not exist. Valid aliases: ft:theirs."
        error = {"message": said, "type": "NotFoundError", "param": "model", "code": 400}
        return web.json_response({"error": error}, status=400)

    engine.handler = answer
    client = front.openai()
    usage = (await client.chat.completions.create(model="toy", messages=HI)).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.completion_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 4
    assert usage.completion_tokens_details.reasoning_tokens == 2
    engine.handler = refuse
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model="toy", messages=HI)
    assert "theirs" not in refused.value.response.text
    assert refused.value.type == "invalid_request_error"


async def test_a_kind_that_changes_while_a_request_waits_is_checked_again(front: Front) -> None:
    async with running_engine() as engine:
        front.board.pin("cold", engine="vllm")
        front.board.on_want = lambda project_id, model: front.board.pin(
            model, engine.address, engine="another"
        )
        with pytest.raises(openai.BadRequestError) as refused:
            await front.openai().chat.completions.create(
                model="cold", messages=HI, extra_body={"min_p": 0.1}
            )
        assert refused.value.param == "min_p"
        assert not engine.requests


async def _made(
    http: httpx.AsyncClient, path: str, headers: dict[str, str] | None = None, **fields: Any
) -> Any:
    answer = await http.post(path, json=fields, headers=headers)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def _key(http: httpx.AsyncClient, role: str, **options: Any) -> str:
    made = await _made(http, "/v1/api_keys", name=role, role=role, **options)
    return str(made["value"])
