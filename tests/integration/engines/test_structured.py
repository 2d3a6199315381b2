"""Answers held to JSON and to JSON schemas, by a model whose weights are random."""

import asyncio
import json
from enum import StrEnum
from typing import Annotated, Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.shared_params import ResponseFormatJSONSchema
from pydantic import BaseModel, Field
from tests.support.processes.engine import RunningEngine

from windlass_agent.engines.port import EngineControl

pytestmark = pytest.mark.torch

HELLO: list[Any] = [{"role": "user", "content": "hello fox"}]


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Fox(BaseModel):
    name: Annotated[str, Field(max_length=6)]
    age: Annotated[int, Field(ge=1, le=20)]
    colour: Colour
    friend: "Fox | None" = None


class Walk(BaseModel):
    steps: Annotated[list[Annotated[str, Field(pattern="^[a-z]{2,4}$")]], Field(max_length=3)]
    weather: Annotated[str, Field(max_length=4)] | None
    length: Annotated[float, Field(ge=0, le=1)]


def schema(body: dict[str, Any]) -> ResponseFormatJSONSchema:
    return {"type": "json_schema", "json_schema": {"name": "it", "strict": True, "schema": body}}


async def test_parse_gives_the_type_asked_for(client: AsyncOpenAI) -> None:
    one, other = await asyncio.gather(
        client.chat.completions.parse(
            model="toy", messages=HELLO, response_format=Walk, n=3, seed=3, logprobs=True
        ),
        client.chat.completions.parse(
            model="toy", messages=HELLO, response_format=Fox, temperature=0, stop=["never"]
        ),
    )
    assert all(isinstance(choice.message.parsed, Walk) for choice in one.choices)
    assert len({choice.message.content for choice in one.choices}) > 1
    assert isinstance(other.choices[0].message.parsed, Fox)
    assert other.choices[0].finish_reason == "stop"
    for choice in one.choices:
        assert choice.logprobs
        text = bytes(byte for token in choice.logprobs.content or [] for byte in token.bytes or [])
        assert json.loads(text) == json.loads(choice.message.content or "")


async def test_a_stream_is_the_same_piece_by_piece(client: AsyncOpenAI) -> None:
    arguments: dict[str, Any] = {"model": "toy", "messages": HELLO, "temperature": 0}
    whole = await client.chat.completions.parse(**arguments, response_format=Walk)
    async with client.chat.completions.stream(
        **arguments, response_format=Walk, stream_options={"include_usage": True}
    ) as stream:
        kinds = {event.type async for event in stream}
        last = await stream.get_final_completion()
    assert {"content.delta", "content.done"} <= kinds
    assert last.choices[0].message.parsed == whole.choices[0].message.parsed
    assert last.usage == whole.usage


async def test_free_and_held_answers_share_a_batch_with_adapters(
    client: AsyncOpenAI, control: EngineControl, adapters: dict[str, Any]
) -> None:
    await control.load_adapter("one", adapters["one"])

    async def free() -> Any:
        return await client.chat.completions.create(
            model="toy", messages=HELLO, temperature=0, max_tokens=40
        )

    async def held(model: str) -> Any:
        return await client.chat.completions.parse(
            model=model, messages=HELLO, response_format=Walk, seed=1
        )

    alone = await free()
    beside, *answers = await asyncio.gather(free(), held("toy"), held("one"), held("one"))
    assert beside.choices[0].message.content == alone.choices[0].message.content
    assert all(answer.choices[0].message.parsed for answer in answers)


async def test_an_object_of_any_kind(client: AsyncOpenAI) -> None:
    wanted: Any = {"type": "json_object"}
    answer = await client.chat.completions.create(
        model="toy", messages=HELLO, response_format=wanted, max_tokens=12, seed=5
    )
    text = answer.choices[0].message.content or ""
    assert text.lstrip().startswith("{")
    assert (answer.choices[0].finish_reason == "length") == (not _is_json(text))


async def test_too_few_tokens_end_with_length(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        await client.chat.completions.parse(
            model="toy", messages=HELLO, response_format=Walk, max_tokens=3
        )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"type": "array", "items": {}, "uniqueItems": True}, "'uniqueItems'"),
        ({"type": "string", "pattern": "^(?=a)b$"}, "look-ahead"),
        ({"type": "string", "pattern": "("}, "not a regular expression"),
        ({"type": "string", "format": "frob"}, "'frob'"),
        ({"type": "strin"}, "'strin'"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "No value"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "'anyOf'"),
        ({"not": {"type": "string"}}, "'not'"),
        ({"$ref": "#/$defs/nowhere"}, "points nowhere"),
        ({"$ref": "http://127.0.0.1/x.json"}, "into the schema itself"),
        ({"type": "string", "x-guidance": {"lenient": True}}, "x-guidance"),
        ({"enum": [f"value {n}" for n in range(9000)]}, "64 KiB"),
        ({"properties": {f"p{n}": {} for n in range(1001)}}, "1000 properties"),
        ({"multipleOf": 10**9, "type": "integer"}, "multipleOf"),
        (
            {"allOf": [{"anyOf": [{"type": "string", "minLength": i + j} for j in range(4)]}
                       for i in range(10)]},
            "too large",
        ),
    ],
)  # fmt: skip
async def test_a_schema_that_cannot_be_followed_is_refused_by_name(
    client: AsyncOpenAI, engine: RunningEngine, body: dict[str, Any], why: str
) -> None:
    before = engine.metric("prompt_tokens_total")
    with pytest.raises(openai.BadRequestError, match=why) as refusal:
        await client.chat.completions.create(
            model="toy",
            messages=HELLO,
            response_format=schema(body),
        )
    assert (refusal.value.param, refusal.value.code) == ("response_format", "invalid_json_schema")
    assert engine.metric("prompt_tokens_total") == before


async def test_a_deep_schema_is_refused(client: AsyncOpenAI) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(40):
        deep = {"type": "array", "items": deep}
    with pytest.raises(openai.BadRequestError, match="32 levels"):
        await client.chat.completions.create(
            model="toy",
            messages=HELLO,
            response_format=schema(deep),
        )


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}},
            "response_format.json_schema.name",
        ),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos"),
        ({"response_format": {"type": "json_object"}, "min_tokens": 2}, "min_tokens"),
    ],
)
async def test_a_wrong_format_is_named(
    client: AsyncOpenAI, extra: dict[str, Any], param: str
) -> None:
    body = {"model": "toy", "messages": HELLO, **extra}
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.post("/chat/completions", body=body, cast_to=object)
    assert refusal.value.param == param
    error = refusal.value.body
    assert isinstance(error, dict)
    assert error["message"].endswith(".")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
