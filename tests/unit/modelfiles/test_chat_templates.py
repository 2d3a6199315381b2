"""Chat templates by name, and what is said of a model's own."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.factories.feather import make_feather

from windlass.client.resources.models import model_files
from windlass.modelfiles import RefusedDocument, chat_template, fitting, has_chat_template, misfits
from windlass_agent.engines.builtin.text.templates.environment import render

TURNS = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yo"},
    {"role": "user", "content": "Go"},
]
RENDERED = {
    "chatml": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\nYo<|im_end|>\n<|im_start|>user\nGo<|im_end|>\n"
    "<|im_start|>assistant\n",
    "qwen": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\nYo<|im_end|>\n<|im_start|>user\nGo<|im_end|>\n"
    "<|im_start|>assistant\n",
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nYo<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nGo<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "gemma": "<s><start_of_turn>user\nS\n\nHi<end_of_turn>\n<start_of_turn>model\nYo<end_of_turn>\n"
    "<start_of_turn>user\nGo<end_of_turn>\n<start_of_turn>model\n",
    "deepseek-coder": "<s>S\n### Instruction:\nHi\n### Response:\nYo\n<|EOT|>\n"
    "### Instruction:\nGo\n### Response:\n",
    "mistral": "<s>[INST] S\n\nHi[/INST] Yo</s>[INST] Go[/INST]",
}


def rendered(name: str, messages: list[dict[str, str]], *, prompt: bool = True) -> str:
    variables = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": prompt}
    return render(chat_template(name).read_text(), {**variables, "messages": messages})


@pytest.mark.parametrize("name", RENDERED)
def test_a_named_template_renders_as_its_family_does(name: str) -> None:
    assert rendered(name, TURNS) == RENDERED[name]
    # An answer is learned by its place: what is before it may not change with it.
    asked = rendered(name, TURNS[:2])
    assert rendered(name, TURNS[:3], prompt=False).startswith(asked)
    assert rendered(name, TURNS[1:2])


def model(folder: Path, **documents: Any) -> dict[str, Path]:
    make_feather(folder)
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return model_files(folder)


CHATML = {"added_tokens": [
    {"id": 1, "content": "<|im_start|>"}, {"id": 2, "content": "<|im_end|>"},
    {"id": 3, "content": "<|endoftext|>"},
]}  # fmt: skip


def test_a_template_is_found_wherever_it_stands(tmp_path: Path) -> None:
    assert not has_chat_template(model(tmp_path / "none"))
    assert has_chat_template(model(tmp_path / "config", tokenizer_config={"chat_template": "x"}))
    (make_feather(tmp_path / "file") / "chat_template.jinja").write_text("{{ messages }}")
    assert has_chat_template(model_files(tmp_path / "file"))
    assert has_chat_template(model_files(make_feather(tmp_path / "given"), "chatml"))


def test_templates_are_proposed_by_the_tokens_of_the_tokenizer(tmp_path: Path) -> None:
    assert fitting(model(tmp_path / "plain")) == []
    assert fitting(model(tmp_path / "chatml", tokenizer=CHATML)) == ["chatml", "qwen"]


@pytest.mark.parametrize(
    ("model_type", "fit", "taken"),
    [
        ("qwen2", ["qwen", "chatml"], "qwen"),
        ("qwen3", ["chatml"], "chatml"),
        # Its own does not fit these tokens, and an unknown family has none.
        ("gemma2", ["chatml", "qwen"], "chatml"),
        ("odd", ["chatml", "qwen"], "chatml"),
    ],
)
def test_the_preset_of_the_family_says_which_of_them(
    tmp_path: Path, model_type: str, fit: list[str], taken: str
) -> None:
    folder = tmp_path / "m"
    files = model(folder, tokenizer=CHATML, config={"model_type": model_type})
    assert fitting(files) == fit
    given = model_files(folder, "preset")["chat_template.jinja"]
    assert given.stem == taken
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert model_files(folder, "preset")["chat_template.jinja"].parent == folder


def test_a_preset_whose_templates_do_not_fit_is_told(tmp_path: Path) -> None:
    model(tmp_path / "plain")
    with pytest.raises(RefusedDocument, match="give a file"):
        model_files(tmp_path / "plain", "preset")


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ({}, ["does not have <|im_start|>, <|im_end|>:"]),
        ({"tokenizer": CHATML}, []),
        ({"tokenizer": CHATML, "tokenizer_config": {"eos_token": "<|im_end|>"}}, []),
        ({"tokenizer": CHATML, "tokenizer_config": {"eos_token": {"content": "</s>"}}}, ["</s>"]),
        ({"tokenizer": CHATML, "generation_config": {"eos_token_id": [2, 3]}}, []),
        ({"tokenizer": CHATML, "generation_config": {"eos_token_id": 3}}, ["stop at <|endoftext"]),
        ({"tokenizer": CHATML, "generation_config": {"eos_token_id": 99}}, []),
        ({"tokenizer": CHATML, "generation_config": {"eos_token_id": "odd"}}, []),
    ],
)
def test_a_template_that_does_not_fit_is_told(
    tmp_path: Path, documents: dict[str, Any], said: list[str]
) -> None:
    model(tmp_path / "model", **documents)
    found = misfits(model_files(tmp_path / "model", "chatml"))
    assert len(found) == len(said)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))


def test_what_is_no_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedDocument, match=r"a file, or one of chatml, deepseek-coder, .*, q"):
        chat_template("chatlm")
    for content in (b"\xff\xfe", b"<html>", b"{{ messages }}" * 100_000):
        (tmp_path / "x.jinja").write_bytes(content)
        with pytest.raises(RefusedDocument, match=r"x\.jinja"):
            chat_template(str(tmp_path / "x.jinja"))
