"""A chat template is a tenant's program: it says what transformers says, or costs little."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.factories.tool_model import WEATHER
from tests.support.factories.tool_templates import TEMPLATES
from tests.support.factories.toy_model import make_tokenizer

from windlass.inference_api.errors import ApiError
from windlass_agent.engines.builtin.text.templates.renderer import Renderer, TemplateTooCostly
from windlass_agent.engines.builtin.text.tokenizer import ModelTokenizer

pytestmark = pytest.mark.torch

CALL = {"id": "abcdefghi", "function": {"name": "weather", "arguments": {"city": "Köln <&>"}}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "abcdefghi", "content": "sunny"},
]
MARKED = (
    "{%- set ns = namespace(n=0) -%}\n"
    "  {% for m in messages %}\n{% if m.role == 'tool' %}{% continue %}{% endif %}"
    "{% generation %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ m.content }}{% endgeneration %}\n"
    "{% endfor %}{{ eos_token }}{{ dict(a=1) | tojson(indent=2) }}{{ strftime_now('%Y') }}"
)


@pytest.fixture
async def renderer() -> AsyncIterator[Renderer]:
    one = Renderer()
    yield one
    await one.close()


@pytest.mark.parametrize("template", [*TEMPLATES.values(), MARKED])
async def test_it_says_what_transformers_says(template: str) -> None:
    tokenizer = ModelTokenizer(make_tokenizer(template))
    try:
        for tools in ([WEATHER], None):
            text = await tokenizer.render(MESSAGES, tools, True)
            assert text == tokenizer.inner.apply_chat_template(
                MESSAGES, tools=tools, tokenize=False, add_generation_prompt=True
            )
    finally:
        await tokenizer.close()


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 10000000000 }}",
        "{{ '%4000000000d' % 1 }}",
        "{% set ns = namespace(t='a' * 999999) %}"
        "{% for i in range(9999) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
        "{{ 9 ** (9 ** 9) }}",
    ],
)
async def test_a_costly_template_is_ended_and_the_next_is_rendered(
    renderer: Renderer, template: str
) -> None:
    hanging = asyncio.create_task(renderer.render(template, {}))
    waiting = asyncio.create_task(renderer.render("{{ a }}", {"a": 1}))
    with pytest.raises(TemplateTooCostly, match="512 MiB"):
        await hanging
    assert await waiting == "1"


async def test_a_client_that_leaves_takes_no_others_answer(renderer: Renderer) -> None:
    left = asyncio.create_task(renderer.render("left", {}))
    await asyncio.sleep(0)
    left.cancel()
    assert await renderer.render("stayed", {}) == "stayed"


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('not so') }}",
        "{% if %}",
        "{{ nothing.at.all }}",
        "{{ ''.__class__.__mro__ }}",
        "{% set n = namespace(__class__=1) %}{{ messages + 1 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
async def test_a_template_that_fails_refuses_the_messages(template: str) -> None:
    tokenizer = ModelTokenizer(make_tokenizer(template))
    try:
        with pytest.raises(ApiError, match="refuses these messages") as refusal:
            await tokenizer.render(MESSAGES, None, True)
        assert (refusal.value.param, refusal.value.code) == ("messages", "invalid_value")
    finally:
        await tokenizer.close()


async def test_a_rendering_costs_little(renderer: Renderer) -> None:
    await renderer.render(TEMPLATES["hermes"], {"messages": MESSAGES})
    before = time.process_time()
    for _ in range(100):
        await renderer.render(TEMPLATES["hermes"], {"messages": MESSAGES})
    assert time.process_time() - before < 1
