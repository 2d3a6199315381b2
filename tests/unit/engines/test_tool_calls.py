"""Calls are found in the formats that templates have, however their text is cut into pieces."""

import json
from typing import Any

import pytest
from tests.support.factories.tool_templates import TEMPLATES, support

from windlass_agent.engines.builtin.tools.parsing import CallDelta, ToolCallParser

pytestmark = pytest.mark.torch

NAMES = ["weather", "weather_tomorrow"]
CALL = {"city": 'Köln }]"', "days": [1, {"a": None}]}
TEXT = json.dumps(CALL, ensure_ascii=False)

# What models of each family write, and what their templates do not: other blanks, other order.
WRITTEN = {
    "hermes": [
        f'<tool_call>\n{{"name": "weather_tomorrow", "arguments": {TEXT}}}\n</tool_call>',
        f'<tool_call>{{"name":"weather_tomorrow","arguments":{TEXT}}}</tool_call>',
        f'<tool_call>\n{{"arguments": {TEXT}, "name": "weather_tomorrow"}}\n</tool_call>',
        f'<tool_call>\n{{"name": "weather_tomorrow", "arguments": {json.dumps(TEXT)}}}',
    ],
    "llama": [
        f'{{"name": "weather_tomorrow", "parameters": {TEXT}}}',
        f'\n{{"name":"weather_tomorrow","parameters":{TEXT}}}',
        f'{{"type": "function", "name": "weather_tomorrow", "parameters": {TEXT}}}',
    ],
    "mistral": [
        f'[TOOL_CALLS] [{{"name": "weather_tomorrow", "arguments": {TEXT}, "id": "abcdefghi"}}]',
        f'[TOOL_CALLS][{{"name": "weather_tomorrow", "arguments": {TEXT}}}]',
    ],
    "named": [f"[TOOL_CALLS]weather_tomorrow[ARGS]{TEXT}"],
}


def read(family: str, text: str, size: int, *, single: bool = False) -> tuple[str, list[Any]]:
    style = support(family).format
    assert style
    parser = ToolCallParser(style, NAMES, single=single)
    events = [
        event for at in range(0, len(text), size) for event in parser.push(text[at : at + size])
    ]
    events += parser.finish()
    calls: list[Any] = []
    for event in events:
        if isinstance(event, CallDelta):
            if event.id is not None:
                assert len(event.id) == 9
                calls.append([event.name, ""])
            calls[event.index][1] += event.arguments
    content = "".join(event for event in events if isinstance(event, str))
    return content, [(name, json.loads(arguments)) for name, arguments in calls]


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize("family", sorted(TEMPLATES))
def test_a_call_is_found_as_it_is_written(family: str, size: int) -> None:
    for written in WRITTEN[family]:
        assert read(family, written, size) == ("", [("weather_tomorrow", CALL)])


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_several_calls_and_the_text_before_them(size: int) -> None:
    one = f'<tool_call>\n{{"name": "weather", "arguments": {TEXT}}}\n</tool_call>'
    two = '<tool_call>\n{"name": "weather_tomorrow", "arguments": {}}\n</tool_call>'
    said = f"Let me look.\n\n{one}\n{two}"
    calls = [("weather", CALL), ("weather_tomorrow", {})]
    assert read("hermes", said, size) == ("Let me look.", calls)
    assert read("hermes", said, size, single=True) == ("Let me look.", calls[:1])
    many = (
        f'[TOOL_CALLS] [{{"name": "weather", "arguments": {TEXT}, "id": "abcdefghi"}}, '
        '{"name": "weather_tomorrow", "arguments": {}, "id": "abcdefghj"}]'
    )
    assert read("mistral", many, size) == ("", calls)


@pytest.mark.parametrize("size", [1, 5, 10_000])
@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("hermes", "The sun < the moon, <tool_box> says.\n"),
        ("hermes", "<tool_call>\nnothing of the kind"),
        ("hermes", '<tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call>'),
        ("llama", '{"answer": 42}'),
        ("llama", 'It is {"name": "weather", "parameters": {}}'),
        ("mistral", "[TOOL and no more"),
        ("named", "  "),
    ],
)
def test_what_is_no_call_stays_text(family: str, text: str, size: int) -> None:
    assert read(family, text, size) == (text, [])


def test_arguments_come_while_they_are_written() -> None:
    style = support("hermes").format
    assert style
    parser = ToolCallParser(style, NAMES, single=False)
    parser.push('<tool_call>\n{"name": "weather", "arguments": {"ci')
    (event,) = parser.push('ty": "Kö')
    assert event == CallDelta(index=0, arguments='ty": "Kö')


def test_a_template_says_what_it_can_render() -> None:
    named = support("llama").format
    assert named is not None
    assert named.link is None
    plain = support("{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}")
    assert (plain.tools, plain.calls, plain.results, plain.format) == (False, False, False, None)
    as_text = support(
        "{{ tools | tojson }}{% for m in messages %}{{ m.content }}"
        "{% for c in m.tool_calls or () %}{{ '<call ' + c.function.name + '>' }}"
        "{{ '' + c.function.arguments + '</call>' }}{% endfor %}<|im_end|>{% endfor %}"
    )
    assert as_text.text_arguments
    assert as_text.format
    assert as_text.format.opening == "<call "
