"""The rows of a job as token ids and labels for TorchTune.

They are rendered with the model's own chat template (see `chat_tokens`) and cut here: TorchTune's
`max_seq_len` would hide the end of an answer from the loss.
"""

from pathlib import Path
from typing import Any

import msgspec

from windlass.datasets.chat_tokens import labels
from windlass_agent.runner.protocol.event_file import EventFile
from windlass_agent.runner.trainers.tokenizing import Tokenizing

_PARTS = (("train.jsonl", "training_file"), ("test.jsonl", "validation_file"))
_ANSWERS = ("chosen", "rejected")


def prepare(
    source: Path,
    target: Path,
    *,
    method: str,
    tokenizer: Any,
    limit: int,
    vocabulary: int,
    events: EventFile,
) -> None:
    """Writes the files of a job into `target`; raises Failure."""
    tokenizing = Tokenizing(tokenizer=tokenizer, limit=limit, vocabulary=vocabulary, as_text=True)
    target.mkdir(parents=True)
    for name, param in _PARTS:
        if not (source / name).exists():
            continue
        if method == "dpo":
            texts = target / f"{name}.texts"
            events.write(tokenizing.answers(source / name, texts, param=param))
            _pairs(texts, target / name, tokenizer, limit)
            texts.unlink()
        else:
            events.write(tokenizing.chat(source / name, target / name, param=param))


def count(folder: Path) -> int:
    """Returns the rows to train on that `prepare` wrote."""
    with (folder / "train.jsonl").open("rb") as file:
        return sum(1 for _ in file)


def _pairs(source: Path, target: Path, tokenizer: Any, limit: int) -> None:
    """Writes preferences as tokens: the prompt is read alone, the answers are compared."""
    with source.open("rb") as rows, target.open("wb") as file:
        for line in rows:
            row = msgspec.json.decode(line)
            asked = len(row["prompt"])
            pair = {}
            for name in _ANSWERS:
                text = row["prompt"] + row[name]
                encoded = tokenizer(
                    text,
                    add_special_tokens=False,
                    return_offsets_mapping=True,
                    return_attention_mask=False,
                    verbose=False,
                )
                ids = encoded["input_ids"]
                learned = labels(ids, encoded["offset_mapping"], [(asked, len(text))])
                pair[f"{name}_input_ids"] = ids[:limit]
                pair[f"{name}_labels"] = learned[:limit]
            file.write(msgspec.json.encode(pair) + b"\n")
