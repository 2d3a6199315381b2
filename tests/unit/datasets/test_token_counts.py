"""Tokens are counted, cut and left out as the trainer does it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.factories.toy_model import TEMPLATE, make_tokenizer

from windlass.datasets.checking import check_file
from windlass.datasets.model_folder import FolderTokenizer
from windlass.datasets.token_counts import ApproximateTokenizer, TokenCounts
from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.trainers.tokenizing import Tokenizing

pytestmark = pytest.mark.torch
MARKED = TEMPLATE.replace(
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] }}",
    "{{ '<|im_start|>' + m['role'] + '\n' }}{% generation %}{{ m['content'] }}{% endgeneration %}",
)
# What it says of the past depends on what follows.
FORGETFUL = (
    "{%- for m in messages %}{{ m['role'] }}: "
    "{{ m['content'] if loop.last else m['content'][:3] }}\n{%- endfor %}"
    "{%- if add_generation_prompt %}assistant: {%- endif %}"
)
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich"}}}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {}}}


def say(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


CHATS: list[dict[str, Any]] = [
    {
        "messages": [say("user", "the fox"), say("assistant", "näive café — 日本語 😀")],
        "weights": [0, 1],
    },
    {
        "messages": [say("user", "a"), say("assistant", "long ago " * 20), say("user", "b"),
                     say("assistant", "red green")],
        "weights": [0, 0, 0, 1],
    },
    {
        "messages": [say("user", "rain?"), say("assistant", "") | {"tool_calls": [CALL]},
                     say("tool", "sun"), say("assistant", "no")],
        "weights": [0, 1, 0, 1],
        "tools": [WEATHER],
    },
]  # fmt: skip
PAIRS: list[dict[str, Any]] = [
    {
        "prompt": [say("user", "which " * times)],
        "chosen": [say("assistant", "this one " * more)],
        "rejected": [say("assistant", "that")],
    }
    for times, more in ((1, 1), (1, 30), (40, 1))
]


def folder(path: Path, template: str = TEMPLATE) -> tuple[Path, Any]:
    tokenizer = make_tokenizer(template)
    tokenizer.save_pretrained(path)
    return path, tokenizer


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps({"line": 1, **row}) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("limit", [24, 40, 60, 2048])
@pytest.mark.parametrize("template", [TEMPLATE, MARKED, FORGETFUL])
def test_chat_is_counted_as_the_trainer_counts(tmp_path: Path, template: str, limit: int) -> None:
    path, tokenizer = folder(tmp_path / "model", template)
    rows = CHATS[:2] if template is FORGETFUL else CHATS
    counts = TokenCounts(FolderTokenizer(path), limit)
    for row in rows:
        counts.add(row)
    target = tmp_path / "tokens"
    source = write(tmp_path / "rows", rows)
    try:
        tokenizing = Tokenizing(tokenizer=tokenizer, limit=limit)
        said = tokenizing.chat(source, target, param="training_file")
    except Failure:
        assert counts.all_too_long or not counts.kept
        return
    # The trainer's report does not tell apart what it cuts from what is nothing after the cut.
    assert said.truncated == counts.truncated + counts.left_out
    made = [json.loads(line) for line in target.read_text().splitlines()]
    assert counts.kept == len(made)
    assert counts.trained == sum(len(each["input_ids"]) for each in made)
    if limit == 2048 and template is not FORGETFUL:
        assert list(counts.lengths) == [len(each["input_ids"]) for each in made]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("limit", [16, 40, 60, 2048])
def test_answers_are_counted_as_the_trainer_counts(tmp_path: Path, limit: int, whole: bool) -> None:
    path, tokenizer = folder(tmp_path / "model")
    counts = TokenCounts(FolderTokenizer(path), limit, whole=whole)
    for row in PAIRS:
        counts.add(row)
    tokenizing = Tokenizing(tokenizer=tokenizer, limit=limit, whole=whole)
    source = write(tmp_path / "rows", PAIRS)
    try:
        said = tokenizing.answers(source, tmp_path / "tokens", param="training_file")
    except Failure:
        assert counts.all_too_long
        return
    assert (said.truncated, said.left_out) == (counts.truncated, counts.left_out)
    assert said.examples == len(counts.lengths) == counts.kept + counts.left_out
    made = [json.loads(line) for line in (tmp_path / "tokens").read_text().splitlines()]
    texts = [
        tokenizer.apply_chat_template(row["prompt"] + row[answer], tokenize=False)
        for row in made
        for answer in ("chosen", "rejected")
    ]
    assert counts.trained == sum(min(limit, len(ids)) for ids in tokenizer(texts)["input_ids"])


def test_what_the_template_refuses_is_an_error_of_its_line(tmp_path: Path) -> None:
    path, _ = folder(tmp_path / "model")
    rows = [{"messages": [say("user", text), say("assistant", "b")]} for text in ("a", "refuse me")]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    found = check_file(file, TokenCounts(FolderTokenizer(path), 2048))
    (fault,) = found.faults.kinds
    assert (fault.lines, "refused" in fault.message, found.examples) == ([2], True, 1)


def test_a_file_too_long_as_a_whole_is_refused_as_by_the_trainer(tmp_path: Path) -> None:
    path, _ = folder(tmp_path / "model")
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"messages": [say("user", "a " * 99), say("assistant", "b")]}))
    found = check_file(file, TokenCounts(FolderTokenizer(path), 64))
    assert [fault.message for fault in found.faults.kinds] == ["All 1 examples exceed 64 tokens."]
    assert not check_file(file, TokenCounts(ApproximateTokenizer(), 64)).faults.count


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer.json", None, "no tokenizer.json"),
        ("tokenizer.json", "{", "cannot be read as a tokenizer"),
        ("chat_template.jinja", None, "no chat template"),
        ("chat_template.jinja", "{% if %}", "is wrong"),
        ("tokenizer_config.json", "[]", "must be a JSON object"),
    ],
)
def test_a_folder_that_cannot_count_says_why(
    tmp_path: Path, name: str, content: str | None, said: str
) -> None:
    path, _ = folder(tmp_path / "model")
    (path / name).unlink() if content is None else (path / name).write_text(content)
    with pytest.raises(ValueError, match=said):
        FolderTokenizer(path)


def test_a_template_reaches_nothing_of_the_machine(tmp_path: Path) -> None:
    path, _ = folder(tmp_path / "model", "{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(ValueError, match="refuses"):
        FolderTokenizer(path).render([say("user", "a")], None, False)
