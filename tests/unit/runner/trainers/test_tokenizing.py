"""Rows made into tokens by a real tokenizer, with and without generation markers."""

import json
from pathlib import Path
from typing import Any

import pytest

from windlass.datasets.chat_tokens import IGNORED
from windlass.demo import sailor, tiny_model
from windlass_agent.runner.trainers.tokenizing import Tokenizing

pytestmark = pytest.mark.torch
MARKERS = ("{% generation %}", "{% endgeneration %}")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_model.make_tokenizer(sailor.exchanges(count=50, seed=0))


@pytest.mark.parametrize("marked", [True, False])
def test_only_the_answers_of_weight_one_bear_loss(
    tokenizer: Any, tmp_path: Path, marked: bool
) -> None:
    template = tokenizer.chat_template
    if not marked:
        for marker in MARKERS:
            template = template.replace(marker, "")
    row = {
        "line": 1,
        "messages": [
            {"role": "user", "content": "red lamp"},
            {"role": "assistant", "content": "blue house"},
            {"role": "user", "content": "green tree"},
            {"role": "assistant", "content": "pink cat"},
        ],
        "weights": [0, 0, 0, 1],
    }
    source, target = tmp_path / "rows", tmp_path / "tokens"
    source.write_text(json.dumps(row) + "\n")
    tokenizer.chat_template, before = template, tokenizer.chat_template
    try:
        Tokenizing(tokenizer=tokenizer, limit=512).chat(source, target, param="training_file")
    finally:
        tokenizer.chat_template = before

    tokens = json.loads(target.read_text())
    text = tokenizer.decode(tokens["input_ids"])
    assert "blue house<|im_end|>" in text
    learned = [token for token in tokens["labels"] if token != IGNORED]
    assert tokenizer.decode(learned) == "pink cat<|im_end|>"
    assert len(tokens["labels"]) == len(tokens["input_ids"])
