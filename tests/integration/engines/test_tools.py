"""Tools through openai-python, with a model that has learned to call and one that is held to it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp.test_utils import TestServer
from openai import AsyncOpenAI
from pydantic import BaseModel, Field
from tests.support.factories.tool_model import ASKED, BOTH, GREETED, GREETING, TOLD, WEATHER
from tests.support.factories.tool_templates import TEMPLATES
from tests.support.factories.toy_model import make_tokenizer
from tests.support.processes.engine import RunningEngine

from windlass_agent.engines.builtin.api.routes import build_app
from windlass_agent.engines.builtin.generation.loading import load_model
from windlass_agent.engines.builtin.generation.model import LoadedModel
from windlass_agent.engines.builtin.text.tokenizer import ModelTokenizer

pytestmark = pytest.mark.torch

STRICT = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
CLOSE: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "close",
        "parameters": {
            "type": "object",
            "properties": {"door": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["door"],
            "additionalProperties": False,
        },
    },
}
PLAIN = "{%- for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{%- endfor %}"
ONLY_TOOLS = "{{ (tools or '') | tojson }}" + PLAIN


@pytest.fixture
async def caller(tool_engine: RunningEngine) -> AsyncIterator[AsyncOpenAI]:
    async with tool_engine.client() as one:
        yield one


def asking(text: str, **more: Any) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": text}]
    return {"model": "tools", "messages": messages, "tools": [WEATHER], "temperature": 0, **more}


async def test_a_tool_is_called_and_its_answer_is_read(caller: AsyncOpenAI) -> None:
    asked = asking(ASKED)
    answer = (await caller.chat.completions.create(**asked)).choices[0]
    assert (answer.finish_reason, answer.message.content) == ("tool_calls", None)
    (call,) = answer.message.tool_calls or []
    assert (call.type, call.function.name) == ("function", "weather")
    assert json.loads(call.function.arguments) == {"city": "Rome"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    asked["messages"] += [answer.message.model_dump(exclude_none=True), result]
    answer = (await caller.chat.completions.create(**asked)).choices[0]
    assert (answer.finish_reason, answer.message.content) == ("stop", TOLD)
    assert answer.message.tool_calls is None


async def test_calls_stream_as_openai_has_them(caller: AsyncOpenAI) -> None:
    stream = await caller.chat.completions.create(**asking(BOTH, stream=True))
    deltas = [chunk.choices[0].delta async for chunk in stream]
    calls = [call for delta in deltas for call in delta.tool_calls or []]
    assert [(call.index, call.function.name) for call in calls if call.id and call.function] == [
        (0, "weather"),
        (1, "weather"),
    ]
    assert len(calls) > 4, "arguments come in pieces"
    assert not "".join(delta.content or "" for delta in deltas)
    async with caller.chat.completions.stream(**asking(BOTH)) as events:
        kinds = {event.type async for event in events}
        last = await events.get_final_completion()
    assert {
        "tool_calls.function.arguments.delta",
        "tool_calls.function.arguments.done",
    } <= kinds
    assert last.choices[0].finish_reason == "tool_calls"
    cities = [
        json.loads(call.function.arguments)["city"]
        for call in last.choices[0].message.tool_calls or []
    ]
    assert cities == ["Rome", "Paris"]


async def test_a_client_says_how_many_and_whether(caller: AsyncOpenAI) -> None:
    async def ask(text: str, **more: Any) -> Any:
        answer = await caller.chat.completions.create(**asking(text, **more))
        return answer.choices[0].message

    assert len((await ask(BOTH)).tool_calls) == 2
    assert len((await ask(BOTH, parallel_tool_calls=False)).tool_calls) == 1
    assert (await ask(GREETED)).content == GREETING
    assert (await ask(GREETED, tools=[STRICT])).content == GREETING
    assert (await ask(GREETED, tool_choice="required", parallel_tool_calls=False)).tool_calls
    assert not (await ask(ASKED, tool_choice="none", max_tokens=5)).tool_calls
    (call,) = (await ask(ASKED, tools=[STRICT])).tool_calls
    assert json.loads(call.function.arguments) == {"city": "Rome"}


async def test_a_call_or_a_format(caller: AsyncOpenAI) -> None:
    class Answer(BaseModel):
        sure: bool

    called = await caller.chat.completions.parse(
        **asking(ASKED, tools=[STRICT]), response_format=Answer
    )
    (call,) = called.choices[0].message.tool_calls or []
    assert call.function.parsed_arguments == {"city": "Rome"}
    said = await caller.chat.completions.parse(
        **asking(ASKED, tools=[STRICT], tool_choice="none"), response_format=Answer
    )
    assert isinstance(said.choices[0].message.parsed, Answer)


class Weather(BaseModel):
    city: str = Field(max_length=4)


@pytest.fixture(scope="module")
def toy_model(toy: Path) -> LoadedModel:
    return load_model(toy, name="toy")


@asynccontextmanager
async def serving(model: LoadedModel, template: str) -> AsyncIterator[AsyncOpenAI]:
    """The engine in this process, with another template; one process for each would cost more."""
    # Some templates write more of tools than the toy has been given room for.
    tokenizer = ModelTokenizer(make_tokenizer(template))
    other = replace(model, tokenizer=tokenizer, context_length=4096)
    app = build_app(other, max_adapters=1, max_concurrency=4, max_waiting=8)
    async with TestServer(app) as server:
        base_url = str(server.make_url("/v1"))
        async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
            yield client


@pytest.mark.parametrize("family", sorted(TEMPLATES))
async def test_any_model_can_be_held_to_its_templates_format(
    toy_model: LoadedModel, family: str
) -> None:
    asked = {**asking("Rome?", tools=[WEATHER, CLOSE], temperature=1), "model": "toy"}
    tool = openai.pydantic_function_tool(Weather, name="look")
    async with serving(toy_model, TEMPLATES[family]) as client:
        for seed in range(3):
            answer = await client.chat.completions.create(
                **asked, tool_choice="required", seed=seed, parallel_tool_calls=False
            )
            (call,) = answer.choices[0].message.tool_calls or []
            assert call.function.name in ("weather", "close")
            value = json.loads(call.function.arguments)
            assert value.get("city") in ("Paris", "Rome") or 0 <= value["door"] <= 9
            assert answer.choices[0].finish_reason == "tool_calls"
        named = await client.chat.completions.create(
            **asked, tool_choice={"type": "function", "function": {"name": "close"}}
        )
        assert named.choices[0].message.tool_calls
        assert named.choices[0].message.tool_calls[0].function.name == "close"
        async with client.chat.completions.stream(
            **{**asked, "tools": [tool]}, tool_choice="required", parallel_tool_calls=False
        ) as stream:
            last = await stream.get_final_completion()
        (call,) = last.choices[0].message.tool_calls or []
        assert isinstance(call.function.parsed_arguments, Weather)


@pytest.mark.parametrize("template", [PLAIN, ONLY_TOOLS])
async def test_a_template_without_a_place_for_tools_refuses_them(
    toy_model: LoadedModel, template: str
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    async with serving(toy_model, template) as client:
        asked = {**asking("Rome?"), "model": "toy"}
        with pytest.raises(openai.BadRequestError, match="template") as refusal:
            await client.chat.completions.create(**asked)
        assert (refusal.value.param, refusal.value.code) == ("tools", "unsupported_parameter")
        said = await client.chat.completions.create(**asked, tool_choice="none", max_tokens=1)
        assert said.choices
        asked["messages"] += [{"role": "assistant", "tool_calls": [call]}]
        asked.pop("tools")
        with pytest.raises(openai.BadRequestError, match="template") as refusal:
            await client.chat.completions.create(**asked)
        assert refusal.value.param == "messages[1].tool_calls"


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "x": 1}}]},
            "tools[0].function.x",
        ),
        ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
    ],
)
async def test_a_wrong_tool_is_named(
    caller: AsyncOpenAI, extra: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        await caller.post("/chat/completions", body=asking("hello") | extra, cast_to=object)
    assert refusal.value.param == param


async def test_only_a_strict_function_must_be_enforceable(caller: AsyncOpenAI) -> None:
    loose = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    function = {"name": "weather", "parameters": loose}
    tool = {"type": "function", "function": function}
    strict = {"type": "function", "function": {**function, "strict": True}}
    assert await caller.chat.completions.create(**asking(ASKED, tools=[tool], max_tokens=1))
    with pytest.raises(openai.BadRequestError, match="'uniqueItems'") as refusal:
        await caller.chat.completions.create(**asking(ASKED, tools=[strict]))
    assert refusal.value.param == "tools[0].function.parameters"
    assert refusal.value.code == "invalid_function_parameters"
