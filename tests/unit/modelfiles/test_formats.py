"""Formats of tool calls and reasoning, read from a model's type and chat template."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.engine_arguments import NO_FORMAT, UNCHOSEN, EngineArguments, with_formats
from windlass.modelfiles.formats import (
    UNKNOWN,
    Formats,
    formats_of,
    known_formats,
    template_of_json,
)

HERMES = "{{- '<tool_call>\\n' }}{{- tool_call | tojson }}{{- '\\n</tool_call>' }}"
DEEPSEEK = "<\uff5ctool\u2581calls\u2581begin\uff5c>"
# The parts of real templates that differ.
TEMPLATES = {
    ("qwen2", HERMES): Formats("hermes"),
    ("qwen3", HERMES + "<think>\n\n</think>"): Formats("hermes", "qwen3"),
    ("qwen3_moe", "<tool_call>\n<function={{ name }}>\n</tool_call>"): Formats("qwen3_coder"),
    ("glm4_moe", "<tool_call>{name}\n<arg_key>{k}</arg_key></tool_call>"): Formats("glm45"),
    ("mistral", "[AVAILABLE_TOOLS][TOOL_CALLS]"): Formats("mistral"),
    ("mistral3", "[TOOL_CALLS][THINK]"): Formats("mistral", "mistral"),
    ("llama", "<|start_header_id|>ipython{{ '\"parameters\": ' }}"): Formats("llama3_json"),
    ("llama", "{{ messages }}<think>"): Formats("", "deepseek_r1"),
    ("deepseek_v3", f"{DEEPSEEK}<think>"): Formats("deepseek_v3", "deepseek_r1"),
    ("deepseek_v3", f"{DEEPSEEK}{{% if thinking %}}<think>"): Formats(
        "deepseek_v31", "deepseek_v3"
    ),
    ("gpt_oss", "<|channel|>analysis"): Formats("openai", "openai_gptoss"),
    ("gemma3_text", "<start_of_turn>model"): UNKNOWN,
    ("llama", ""): UNKNOWN,
    ("", ""): UNKNOWN,
}


@pytest.mark.parametrize(("model", "formats"), TEMPLATES.items())
def test_a_template_says_its_formats(model: tuple[str, str], formats: Formats) -> None:
    assert formats_of(*model) == formats


@given(st.text(max_size=20), st.text(max_size=200))
def test_whatever_a_template_is_its_formats_are_of_the_table(kind: str, template: str) -> None:
    found, table = formats_of(kind, template), known_formats()
    assert found.tools in {"", *(one.format for one in table.tools)}
    assert found.reasoning in {"", *(one.format for one in table.reasoning)}


def test_every_rule_wants_something_and_is_found() -> None:
    table = known_formats()
    for number, rules in enumerate((table.tools, table.reasoning)):
        for rule in rules:
            assert rule.types or rule.marks
            for model_type in rule.types or ("",):
                found = formats_of(model_type, "\n".join(rule.marks) or "a template")
                assert (found.tools, found.reasoning)[number] == rule.format


@pytest.mark.parametrize(
    ("document", "template"),
    [
        ({"chat_template": "one"}, "one"),
        ({"chat_template": [{"name": "default", "template": "a"}, {"template": "b"}]}, "a\nb"),
        ({"chat_template": [{"name": "default"}, 3, {"template": 7}]}, ""),
        ({"chat_template": 3}, ""),
        ({}, ""),
        ([], ""),
    ],
)
def test_templates_are_found_in_each_of_their_places(document: object, template: str) -> None:
    assert template_of_json(json.dumps(document).encode()) == template


@given(st.binary(max_size=50))
def test_bytes_that_are_no_document_have_no_template(content: bytes) -> None:
    assert isinstance(template_of_json(content), str)


def test_an_argument_that_is_set_stays() -> None:
    formats = Formats("hermes", "qwen3")
    assert with_formats(UNCHOSEN, formats) == EngineArguments(
        tool_parser="hermes", reasoning_parser="qwen3"
    )
    given = EngineArguments(tool_parser="pythonic", reasoning_parser=NO_FORMAT)
    assert with_formats(given, formats) == given
    assert with_formats(UNCHOSEN, UNKNOWN) is UNCHOSEN
