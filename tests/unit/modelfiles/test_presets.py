"""Presets: each is sound, chosen by what files say, and an operator's is read with care."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools import generate_presets_reference as generator

from windlass.core.config import Settings
from windlass.engine_arguments import EngineArguments, preset_arguments
from windlass.modelfiles import RefusedDocument, known_types
from windlass.modelfiles.chat_templates import NAMED
from windlass.modelfiles.presets import Preset, PresetTable, shipped
from windlass.modelfiles.presets.preset import Task
from windlass.models.presets import KEPT_BYTES, LIMITED, check_presets, preset_table

TABLE = PresetTable(shipped())
TURNS = '{"added_tokens": [{"content": "<|start_header_id|>"}]}'
CODE = json.dumps({"added_tokens": [{"content": "<\uff5cbegin\u2581of\u2581sentence\uff5c>"},
                                    {"content": "<|EOT|>"}]})  # fmt: skip


def test_the_page_is_current() -> None:
    assert generator.TARGET.read_text() == generator.reference(), "run `make docs`"


@pytest.mark.parametrize("name", shipped())
def test_every_preset_is_sound(name: str) -> None:
    preset = shipped()[name]
    assert set(preset.chat_templates) <= set(NAMED)
    assert len(msgspec.json.encode(TABLE.given(name))) < KEPT_BYTES / 2
    assert set(preset.limits) <= set(LIMITED)
    assert dict(preset_arguments(preset.arguments)).keys() == preset.arguments.keys()
    known = known_types()
    if preset.task == "generation" and "training" not in preset.limits:
        assert set(preset.types) <= set(known.generation)
        assert preset.lora_targets
    else:
        assert "training" in preset.limits, "what is not trained says why"
        assert not preset.lora_targets
    if preset.task == "scoring":
        assert set(preset.types) <= set(known.scoring)


def test_a_model_has_one_preset_at_most() -> None:
    claims = [
        (model_type, one.task, frozenset(one.tokens))
        for one in shipped().values()
        for model_type in one.types
    ]
    assert len(claims) == len(set(claims))


@pytest.mark.parametrize(
    ("model_type", "task", "tokenizer", "name"),
    [
        ("llama", "generation", "{}", "llama"),
        ("llama", "generation", TURNS, "llama3"),
        ("llama", "generation", CODE, "deepseek-coder"),
        ("llama", "generation", json.dumps(json.loads(CODE), ensure_ascii=False), "deepseek-coder"),
        ("llama", "embedding", TURNS, "decoder-embedder"),
        ("qwen3", "scoring", "{}", "reward-model"),
        ("bert", "embedding", "{}", "encoder-embedder"),
        ("bert", "generation", "{}", ""),
        ("llama3", "generation", "{}", ""),
        ("", "generation", "{}", ""),
    ],
)
def test_it_is_chosen_by_what_the_files_say(
    model_type: str, task: Task, tokenizer: str, name: str
) -> None:
    tokens = TABLE.tokens_in(tokenizer.encode())
    assert TABLE.choose(model_type, task, tokens) == name
    given = TABLE.given(name)
    assert (given.name if given else "") == name


MINE: dict[str, Any] = {
    "about": "Of ours.",
    "types": ["odd"],
    "arguments": {"vllm": {"context_length": 4096}},
}


def own(folder: Path, name: str = "mine", **changes: Any) -> str:
    (folder / f"{name}.json").write_text(json.dumps(MINE | changes))
    return str(folder)


def test_an_operator_adds_presets_and_replaces_some(tmp_path: Path) -> None:
    own(tmp_path)
    table = preset_table(own(tmp_path, "qwen3", types=["qwen3"], lora_targets=["q_proj"]))
    assert table.choose("odd", "generation", ()) == "mine"
    given = table.given("mine")
    assert given
    assert preset_arguments(given.arguments) == (("vllm", EngineArguments(context_length=4096)),)
    assert table[table.choose("qwen3", "generation", ())].lora_targets == ("q_proj",)
    assert table.choose("gemma2", "generation", ()) == "gemma"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"types": []}, "$.types"),
        ({"types": "odd"}, "$.types"),
        ({"targets": ["q_proj"]}, "targets"),
        ({"task": "write"}, "$.task"),
        ({"lora_targets": ["--flag"]}, "$.lora_targets"),
        ({"tools": [{"format": "../x"}]}, "$.tools[0].format"),
        ({"reasoning": [{"marks": ["x"]}]}, "format"),
        ({"chat_templates": ["chatml"]}, "chat_templates"),
        ({"limits": {"tea": "x"}}, "limits.tea"),
        ({"arguments": {"ollama": {}}}, "arguments.ollama"),
        ({"arguments": {"vllm": {"dtype": "int4"}}}, "arguments.vllm.dtype"),
        ({"arguments": {"vllm": {"trust_remote_code": True}}}, "arguments.vllm.trust_remote_code"),
        ({"arguments": {"builtin": {"eager": True}}}, "arguments.builtin.eager"),
        ({"arguments": {"vllm": {"tensor_parallel": 2}}}, "arguments.vllm.tensor_parallel"),
        ({"arguments": {"vllm": {"draft_model": "small"}}}, "arguments.vllm.draft_model"),
        ({"arguments": {"llamacpp": {"draft_tokens": 2}}}, "arguments.llamacpp.draft_tokens"),
        ({"lora_targets": ["x" * 60 + str(n) for n in range(9)]}, "more than 512 bytes"),
        ({"about": "x" * 70_000}, "at most 65536 bytes"),
    ],
)
def test_a_wrong_one_is_refused_at_the_start_with_its_file_and_field(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    folder = own(tmp_path, **changes)
    with pytest.raises(RefusedDocument) as refused:
        preset_table(folder)
    assert said in refused.value.message
    assert str(tmp_path / "mine.json") in refused.value.message
    (finding,) = check_presets(Settings(inference={"presets": folder}))
    assert (finding.level, finding.key) == ("error", "inference.presets")


def test_what_is_no_preset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedDocument, match="no folder"):
        preset_table(str(tmp_path / "missing"))
    (tmp_path / "bad name.json").write_text(json.dumps(MINE))
    with pytest.raises(RefusedDocument, match=r"bad name\.json"):
        preset_table(str(tmp_path))
    (tmp_path / "bad name.json").unlink()
    (tmp_path / "x.json").write_bytes(b"\xff{")
    with pytest.raises(RefusedDocument, match=r"x\.json"):
        preset_table(str(tmp_path))
    assert not check_presets(Settings())


def test_a_preset_is_written_as_it_is_read() -> None:
    for preset in shipped().values():
        assert msgspec.convert(msgspec.to_builtins(preset), Preset) == preset
