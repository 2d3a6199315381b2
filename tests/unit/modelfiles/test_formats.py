"""Formats of tool calls and reasoning, read from a model's type and chat template."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.engine_arguments import (
    NO_FORMAT,
    UNCHOSEN,
    EngineArguments,
    completed,
    of_files,
)
from windlass.modelfiles.formats import UNKNOWN, Formats, marked_tools, template_of_json
from windlass.modelfiles.presets import PresetTable, shipped

TABLE = PresetTable(shipped())

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


def formats_of(model_type: str, template: str) -> Formats:
    return TABLE.formats(TABLE.choose(model_type, "generation", ()), template)


@pytest.mark.parametrize(("model", "formats"), TEMPLATES.items())
def test_a_template_says_its_formats(model: tuple[str, str], formats: Formats) -> None:
    assert formats_of(*model) == formats


@given(st.sampled_from(["", "odd", "llama", "gpt_oss", "qwen3"]), st.text(max_size=200))
def test_whatever_a_template_is_its_formats_are_of_the_table(kind: str, template: str) -> None:
    found = formats_of(kind, template)
    general = [one.format for one in marked_tools()]
    tools = [one.format for preset in shipped().values() for one in preset.tools]
    assert found.tools in {"", *general, *tools}
    assert found.reasoning in {
        "", *(one.format for preset in shipped().values() for one in preset.reasoning)
    }  # fmt: skip


@pytest.mark.parametrize("name", ["", *shipped()])
def test_every_rule_wants_something_and_is_found(name: str) -> None:
    preset = shipped().get(name)
    tools, reasoning = (preset.tools, preset.reasoning) if preset else (marked_tools(), ())
    for number, rules in enumerate((tools, reasoning)):
        for rule in rules:
            found = TABLE.formats(name, "\n".join(rule.marks) or "a template")
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
    derived = of_files("vllm", Formats("hermes", "qwen3"))
    assert derived == EngineArguments(tool_parser="hermes", reasoning_parser="qwen3")
    assert completed(UNCHOSEN, derived) == derived
    given = EngineArguments(tool_parser="pythonic", reasoning_parser=NO_FORMAT)
    assert completed(given, derived) == given
    assert completed(given, of_files("vllm", UNKNOWN)) is given
    assert of_files("sglang", Formats("hermes"), "embed") == UNCHOSEN, "it finds out by itself"
