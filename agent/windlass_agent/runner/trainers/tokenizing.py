"""The rows of a dataset folder made ready for TRL, in bounded memory.

Chat becomes `input_ids` and `labels`, which TRL takes as they are. Prompts and answers to them
stay messages, which is what most of TRL's trainers read; they are rendered here only to be
checked, and for ORPO, whose trainer would leave out their tools.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from windlass.datasets.chat_tokens import (
    IGNORED,
    Messages,
    Rendered,
    end_of,
    labels,
    render_chat,
    shared,
)
from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.protocol.trainer_events import Prepared
from windlass_agent.runner.trainers.tool_places import ToolPlaces

_BATCH = 256
_ANSWERS = ("chosen", "rejected", "completion")
_KEPT = ("prompt", *_ANSWERS, "label", "item")
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tokenizing:
    """Settings for turning rows into tokens: the tokenizer, the limit, and which tokens to learn.

    `vocabulary` is how many tokens the model knows. `whole` says that the trainer leaves out an
    answer beyond the limit instead of cutting it, `as_text` that it reads texts where the others
    read messages.
    """

    tokenizer: Any
    limit: int | None
    vocabulary: int | None = None
    answers_alone: bool = True
    whole: bool = False
    as_text: bool = False

    def __post_init__(self) -> None:
        if not self.tokenizer.chat_template:
            raise Failure(
                "model_has_no_chat_template",
                "The base model's tokenizer has no chat template, so it cannot render "
                "conversations. Import it with a chat_template.jinja, or with --chat-template.",
                param="model",
            )
        if not self.tokenizer.is_fast:
            raise Failure(
                "model_not_supported",
                "The base model has no tokenizer.json; import it with a fast tokenizer.",
                param="model",
            )

    @cached_property
    def _places(self) -> ToolPlaces:
        return ToolPlaces(self.tokenizer)

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

    def answers(self, source: Path, target: Path, *, param: str) -> Prepared:
        """Writes prompts, and answers to them, as TRL reads them; raises Failure."""
        count = truncated = left_out = 0
        with target.open("wb") as file:
            for row in _rows(source):
                asked, *answered = self._lengths(row, param)
                count += 1
                is_long = self.limit is not None and max(asked, *answered, 0) > self.limit
                if self.limit is not None and (asked >= self.limit or (is_long and self.whole)):
                    left_out += 1
                    continue
                truncated += is_long
                written = self._as_text(row, param) if self.as_text else _as_messages(row)
                file.write(msgspec.json.encode(written) + b"\n")
        return self._checked(
            param, count=count, truncated=truncated, kept=count - left_out, left_out=left_out
        )

    def _as_text(self, row: Row, param: str) -> Row:
        """The prompt up to where it and both answers begin to differ, and what follows it."""
        end_token = self.tokenizer.eos_token or ""
        asked = self._text(row, row["prompt"], True, param)
        texts = {
            name: self._text(row, [*row["prompt"], *row[name]], False, param)
            for name in _ANSWERS
            if name in row
        }
        start = min(shared(asked, text) for text in texts.values())
        parts = {name: text[start : end_of(text, end_token)] for name, text in texts.items()}
        return {"prompt": asked[:start], **parts}

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
        if missing := self._places.missing(row, messages):
            raise Failure(
                f"invalid_{param}",
                f"Line {row['line']}: the base model's chat template does not render {missing}, "
                "so the model would not learn them. Import it with a chat_template.jinja that "
                "renders tools.",
                param=param,
            )
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
            self._check_known(ids)
            yield {"input_ids": ids, "labels": labels(ids, offsets, example.learned)}

    def _lengths(self, row: Row, param: str) -> list[int]:
        """Tokens of the prompt, and of the prompt with each answer."""
        prompt = row["prompt"]
        answers = [[*prompt, *row[name]] for name in _ANSWERS if name in row]
        texts = [self._text(row, prompt, True, param)]
        texts += [self._text(row, answered, False, param) for answered in answers]
        encoded = self.tokenizer(texts, add_special_tokens=False, verbose=False)
        for ids in encoded["input_ids"]:
            self._check_known(ids)
        return [len(ids) for ids in encoded["input_ids"]]

    def _check_known(self, ids: list[int]) -> None:
        """Raises Failure for a token that the model has no embedding of."""
        if self.vocabulary is not None and max(ids, default=0) >= self.vocabulary:
            raise Failure(
                "tokenizer_does_not_fit",
                f"The base model's tokenizer produces token {max(ids)}, but the model has "
                f"only {self.vocabulary} tokens. Import the model with its own tokenizer.",
                param="model",
            )

    def _checked(
        self, param: str, *, count: int, truncated: int, kept: int, left_out: int = 0
    ) -> Prepared:
        if count and truncated + left_out == count:
            message = f"All {count} examples exceed {self.limit} tokens."
        elif not kept:
            message = "No example has an assistant message to learn from."
        else:
            split = param.removesuffix("_file")
            return Prepared(
                split=split,
                examples=count,
                truncated=truncated,
                left_out=left_out,
                limit=self.limit,
            )
        raise Failure(f"invalid_{param}", message, param=param)


def _as_messages(row: Row) -> Row:
    # Arrow would give the tools of all rows one schema; TRL reads them as JSON.
    tools = {"tools": msgspec.json.encode(row["tools"]).decode()} if "tools" in row else {}
    return {name: row[name] for name in _KEPT if name in row} | tools


def _rows(source: Path) -> Iterator[Row]:
    with source.open("rb") as file:
        for line in file:
            yield msgspec.json.decode(line)


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(islice(rows, _BATCH)):
        yield batch
