"""Graders with openai-python, through the front door, over scripted engines."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest
from aiohttp import web
from tests.support.services.front import Engine, Front, Handler, running_engine, running_front
from tests.support.services.front import usage as tokens
from tests.support.services.front_usage import used
from tests.unit.graders.test_definitions import CHECK, LABEL, LIKE, MULTI, PYTHON, SCORE


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(
        database_url, tmp_path / "data", inference={"hold_seconds": 3}
    ) as front:
        yield front


@pytest.fixture
async def engine(front: Front) -> AsyncIterator[Engine]:
    async with running_engine() as engine:
        front.board.pin("toy", engine.address)
        yield engine


def says(text: str | None, **message: Any) -> Handler:
    """A handler whose model says this."""

    async def handler(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}}
        return web.json_response({"choices": [choice], "usage": tokens(20, 2)})

    return handler


def graders(front: Front, key: str | None = None) -> Any:
    return front.openai(key).fine_tuning.alpha.graders


async def test_a_grader_is_validated(front: Front) -> None:
    client = graders(front)
    for grader in (CHECK, LIKE, SCORE, LABEL, MULTI):
        answer = await client.with_raw_response.validate(grader=grader)
        assert answer.http_response.json() == {"grader": grader}


async def test_what_is_no_grader_is_refused_by_its_field(front: Front) -> None:
    client = graders(front)
    for document, param, why in (
        ({**CHECK, "operation": "regex"}, "grader.operation", "regex"),
        ({**CHECK, "input": "{{answer}}"}, "grader.input", "must begin with `item.`"),
        ({**MULTI, "calculate_output": "open"}, "grader.calculate_output", "uses 'open'"),
        ({**PYTHON, "source": "x = 1"}, "grader.source", "def grade"),
    ):
        for call, fields in ((client.validate, {}), (client.run, {"model_sample": "x"})):
            with pytest.raises(openai.BadRequestError, match=why) as raised:
                await call(**fields, grader={}, extra_body={"grader": document})
            assert raised.value.param == param


async def test_an_answer_is_graded(front: Front) -> None:
    found = await graders(front).run(
        grader=CHECK, model_sample="blue", item={"answer": "blue", "more": [1, {"a": None}]}
    )
    assert found.reward == 1
    assert found.sub_rewards == {}
    assert found.api_model_grader_token_usage_per_model == {}
    metadata = found.metadata
    assert (metadata.name, metadata.type, metadata.scores) == (
        "exact",
        "string_check",
        {"exact": 1},
    )
    assert metadata.execution_time > 0
    assert metadata.token_usage is None
    flags = {name for name, value in metadata.errors.to_dict().items() if value}
    assert not flags


async def test_a_multi_grader_tells_the_score_of_each_part(front: Front) -> None:
    found = await graders(front).run(
        grader=MULTI, model_sample="a red cat", item={"answer": "a blue cat"}
    )
    assert found.sub_rewards["exact"] == 0
    assert 0 < found.sub_rewards["like"] < 1
    assert found.reward == pytest.approx(found.sub_rewards["like"] / 2)


async def test_an_item_without_the_field_is_a_fault_and_no_reward(front: Front) -> None:
    found = await graders(front).run(grader=CHECK, model_sample="blue")
    assert found.reward == 0
    assert found.metadata.errors.invalid_variable_error is True
    assert found.metadata.errors.windlass == {"invalid_variable_error": "There is no item.answer."}


async def test_a_model_grades_within_the_callers_account(front: Front, engine: Engine) -> None:
    engine.handler = says("0.75")
    found = await graders(front).run(
        grader={**SCORE, "sampling_params": {"temperature": 0.5, "max_completions_tokens": 9}},
        model_sample="an answer",
    )
    assert found.reward == 0.75
    (request,) = engine.requests
    assert request["messages"][-1] == {"role": "user", "content": "Judge an answer"}
    assert (request["temperature"], request["max_completion_tokens"]) == (0.5, 9)
    assert found.metadata.sampled_model_name == "toy"
    assert found.metadata.token_usage == 22
    assert found.api_model_grader_token_usage_per_model["toy"] == tokens(20, 2)
    counted = await used(front, 1)
    assert (counted["input_tokens"], counted["output_tokens"]) == (20, 2)


async def test_models_and_texts_grade_together(front: Front, engine: Engine) -> None:
    engine.handler = says("good")
    parts = {"exact": CHECK, "judge": {**LABEL, "name": "judge"}}
    found = await graders(front).run(
        grader={**MULTI, "graders": parts, "calculate_output": "(exact + 3 * judge) / 4"},
        model_sample="red",
        item={"answer": "blue"},
    )
    assert (found.reward, found.sub_rewards) == (0.75, {"exact": 0, "judge": 1})


async def test_what_a_model_says_amiss_is_a_fault(front: Front, engine: Engine) -> None:
    async def broken(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "out of memory"}}, status=500)

    async def no_completion(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"choices": "none"})

    client = graders(front)
    for handler, flag, why in (
        (says("splendid"), "model_grader_parse_error", "did not answer with a number: 'splendid'"),
        (says("7"), "model_grader_parse_error", "answered 7, which is not between 0 and 1"),
        (says(None, refusal="I will not."), "model_grader_refusal_error", "I will not."),
        (broken, "model_grader_server_error", "The engine failed to answer (request "),
        (no_completion, "model_grader_server_error", "not a chat completion"),
    ):
        engine.handler = handler
        found = await client.run(grader=SCORE, model_sample="x")
        errors = found.metadata.errors.to_dict()
        assert found.reward == 0
        assert [name for name in errors if name.endswith("error") and errors[name]] == [flag]
        assert why in errors["windlass"][flag]
        assert (errors["model_grader_server_error_details"] is not None) == ("server" in flag)


async def test_a_model_that_is_not_there_is_named(front: Front) -> None:
    with pytest.raises(openai.NotFoundError, match="'toy' does not exist") as raised:
        await graders(front).run(grader=SCORE, model_sample="x")
    assert raised.value.code == "model_not_found"


async def test_who_may_create_no_jobs_may_not_grade(front: Front) -> None:
    async with front.http() as http:
        body = {"name": "reader", "role": "organization_reader"}
        reader = (await http.post("/v1/api_keys", json=body)).json()["value"]
    client = graders(front, reader)
    for call in (client.validate(grader=CHECK), client.run(grader=CHECK, model_sample="x")):
        with pytest.raises(openai.PermissionDeniedError, match=r"jobs\.write"):
            await call
    with pytest.raises(openai.AuthenticationError):
        await graders(front, "nobody").run(grader=CHECK, model_sample="x")


async def test_a_tenants_model_grades_for_nobody_else(front: Front) -> None:
    async with front.http() as http, running_engine() as engine:
        engine.handler = says("1")
        keys = []
        for title in ("One", "Other"):
            project = (await http.post("/v1/projects", json={"title": title})).json()["id"]
            body = {"name": title, "role": "project_member", "project_id": project}
            made = (await http.post("/v1/api_keys", json=body)).json()
            keys.append((made["value"], project))
        (own, project), (strange, _) = keys
        front.board.pin("toy", engine.address, project_id=project)
        assert (await graders(front, own).run(grader=SCORE, model_sample="x")).reward == 1
        with pytest.raises(openai.NotFoundError, match="do not have access"):
            await graders(front, strange).run(grader=SCORE, model_sample="x")
        assert len(engine.requests) == 1


async def test_bodies_that_are_none_are_refused(front: Front) -> None:
    async with front.http(**{"content-type": "application/json"}) as http:
        deep: Any = orjson.loads("[" * 500 + "]" * 500)
        for body, param in (
            ({}, "grader"),
            ({"grader": CHECK}, "model_sample"),
            ({"grader": CHECK, "model_sample": 3}, "model_sample"),
            ({"grader": CHECK, "model_sample": "x", "item": [1]}, "item"),
            ({"grader": CHECK, "model_sample": "x", "items": {}}, "items"),
            ({"grader": {**CHECK, "extra": deep}, "model_sample": "x"}, "grader.extra"),
            ({"grader": {**CHECK, "name": "\ud800"}, "model_sample": "x"}, "grader"),
            ({"grader": CHECK, "model_sample": "\ud800"}, "model_sample"),
            ({"grader": CHECK, "model_sample": "x" * 2**20}, "model_sample"),
            ({"grader": CHECK, "model_sample": "x", "item": {"a": "x" * 2**20}}, "item"),
            ({"grader": {**CHECK, "input": "x" * 2**19}, "model_sample": "x"}, "grader"),
        ):
            sent = json.dumps(body)
            answer = await http.post("/v1/fine_tuning/alpha/graders/run", content=sent)
            assert answer.status_code == 400, answer.text
            assert answer.json()["error"]["param"] == param
