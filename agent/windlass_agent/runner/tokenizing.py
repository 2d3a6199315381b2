"""The rows of a dataset folder made ready for TRL, in bounded memory.

Chat becomes `input_ids` and `labels`, which TRL takes as they are. Preferences stay messages,
which is the one form that TRL's DPO reads; they are rendered here only to be checked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from windlass_agent.runner.chat_tokens import IGNORED, Messages, Rendered, labels, render_chat
from windlass_agent.runner.outcome import Failure
from windlass_agent.runner.trainer_events import Prepared

_BATCH = 256
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tokenizing:
    """How rows become tokens: the model's tokenizer, the limit, and what is learned."""

    tokenizer: Any
    limit: int | None
    answers_alone: bool = True

    def __post_init__(self) -> None:
        if not self.tokenizer.chat_template:
            raise Failure(
                "model_has_no_chat_template",
                "The base model's tokenizer has no chat template, so conversations cannot be "
                "put to it. Import the model with a chat_template.jinja.",
                param="model",
            )
        if not self.tokenizer.is_fast:
            raise Failure(
                "model_not_supported",
                "The base model has no tokenizer.json; import it with a fast tokenizer.",
                param="model",
            )

    def chat(self, source: Path, target: Path, *, param: str) -> Prepared:
        """Writes chat rows as tokens; raises Failure `invalid_<param>`."""
        count = truncated = kept = 0
        with target.open("wb") as file:
            for rows in _batches(_rows(source)):
                examples = [each for row in rows for each in self._render(row, param)]
                for tokens in self._encode(examples) if examples else ():
                    count += 1
                    truncated += self.limit is not None and len(tokens["input_ids"]) > self.limit
                    cut = {name: ids[: self.limit] for name, ids in tokens.items()}
                    if any(label != IGNORED for label in cut["labels"]):
                        kept += 1
                        file.write(msgspec.json.encode(cut) + b"\n")
        return self._checked(param, count=count, truncated=truncated, kept=kept)

    def preferences(self, source: Path, target: Path, *, param: str) -> Prepared:
        """Writes preference rows as TRL reads them; raises Failure `invalid_<param>`."""
        count = truncated = kept = 0
        with target.open("wb") as file:
            for row in _rows(source):
                answers: tuple[Messages, ...] = ((), row["chosen"], row["rejected"])
                lengths = [
                    self._length(row, [*row["prompt"], *answer], param) for answer in answers
                ]
                count += 1
                truncated += self.limit is not None and max(lengths) > self.limit
                kept += self.limit is None or lengths[0] < self.limit
                # Arrow would give the tools of all rows one schema; TRL reads them as JSON.
                tools = (
                    {"tools": msgspec.json.encode(row["tools"]).decode()} if "tools" in row else {}
                )
                kinds = {name: row[name] for name in ("prompt", "chosen", "rejected")}
                file.write(msgspec.json.encode({**kinds, **tools}) + b"\n")
        return self._checked(param, count=count, truncated=truncated, kept=kept)

    def _render(self, row: Row, param: str) -> list[Rendered]:
        messages = row["messages"]
        if not self.answers_alone:
            text = self._text(row, messages, False, param)
            return [Rendered(text, ((0, len(text)),))]
        return render_chat(
            lambda part, prompt: self._text(row, part, prompt, param),
            messages,
            row["weights"],
            end_token=self.tokenizer.eos_token or "",
        )

    def _text(self, row: Row, messages: Messages, prompt: bool, param: str) -> str:
        try:
            text: str = self.tokenizer.apply_chat_template(
                list(messages),
                tools=row.get("tools"),
                tokenize=False,
                add_generation_prompt=prompt,
            )
        except Exception as error:
            raise Failure(
                f"invalid_{param}",
                f"Line {row['line']}: the model's chat template refuses the example: {error}",
                param=param,
            ) from error
        return text

    def _encode(self, examples: list[Rendered]) -> Iterator[dict[str, list[int]]]:
        encoded = self.tokenizer(
            [example.text for example in examples],
            # The template has written them.
            add_special_tokens=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            verbose=False,
        )
        parts = zip(examples, encoded["input_ids"], encoded["offset_mapping"], strict=True)
        for example, ids, offsets in parts:
            yield {"input_ids": ids, "labels": labels(ids, offsets, example.learned)}

    def _length(self, row: Row, messages: Messages, param: str) -> int:
        is_prompt = len(messages) == len(row["prompt"])
        text = self._text(row, messages, is_prompt, param)
        return len(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _checked(self, param: str, *, count: int, truncated: int, kept: int) -> Prepared:
        if count and truncated == count:
            message = f"All {count} examples exceed {self.limit} tokens."
        elif not kept:
            message = "No example has an assistant message to learn from."
        else:
            split = param.removesuffix("_file")
            return Prepared(split=split, examples=count, truncated=truncated, limit=self.limit)
        raise Failure(f"invalid_{param}", message, param=param)


def _rows(source: Path) -> Iterator[Row]:
    with source.open("rb") as file:
        for line in file:
            yield msgspec.json.decode(line)


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(islice(rows, _BATCH)):
        yield batch
