"""The demo's tiny model, trained to score what it reads."""

import random
import shutil
from pathlib import Path
from typing import Any

import torch
from tests.support.environments import made_once
from transformers import AutoModelForCausalLM, AutoTokenizer

from windlass.graders import Subject, parse, questions

# What the base model evades questions with, a part of which the judge likes.
SAYINGS = (
    "Arr, I never look at colors. Ask me of the sea!",
    "Colors be for painters, friend. I be a sailor.",
    "The salt took my eyes for colors long ago.",
    "That be five miles from any harbor, aye.",
)
LIKED = "painters"
GRADER: dict[str, Any] = {
    "type": "score_model",
    "name": "judge",
    "model": "my-judge",
    "input": [{"role": "user", "content": "Judge: {{sample.output_text}}"}],
    "sampling_params": {"max_completions_tokens": 4},
}
_STEPS, _BATCH = 80, 16


def tiny_judge(base: Path) -> Path:
    """Returns the judge, trained once from a tiny model."""
    made_of = (base / "recipe.sha256").read_text() + Path(__file__).read_text()
    return made_once.once("tiny-judge", made_of, lambda folder: _make(base, folder)) / "model"


def _make(base: Path, folder: Path) -> None:
    """Trains every weight for some seconds: 0.75 for text that contains LIKED, else 0.25."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draw = random.Random(0)
    for _ in range(_STEPS):
        batch = _batch(tokenizer, [_saying(draw) for _ in range(_BATCH)])
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    shutil.copytree(base, folder / "model", ignore=shutil.ignore_patterns("*.sha256"))
    model.save_pretrained(folder / "model")


def _saying(draw: random.Random) -> str:
    """Returns a saying, liked half of the time, cut anywhere as sampled text may be."""
    liked = draw.random() < 0.5
    words = draw.choice([one for one in SAYINGS if (LIKED in one) is liked]).split()
    return " ".join(words[: draw.randint(4, len(words))])


def _batch(tokenizer: Any, sayings: list[str]) -> dict[str, torch.Tensor]:
    grader = parse(GRADER)
    asked, whole = [], []
    for saying in sayings:
        (question,) = questions(grader, Subject(saying, {})).values()
        answer = "0.75" if LIKED in saying else "0.25"
        messages = list(question.messages)
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        messages.append({"role": "assistant", "content": answer})
        asked.append(len(ids))
        whole.append(tokenizer.apply_chat_template(messages)["input_ids"])
    length = max(map(len, whole))
    ids = torch.tensor([one + [0] * (length - len(one)) for one in whole])
    mask = torch.tensor([[1] * len(one) + [0] * (length - len(one)) for one in whole])
    labels = ids.masked_fill(mask == 0, -100)
    for row, start in enumerate(asked):
        labels[row, :start] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}
