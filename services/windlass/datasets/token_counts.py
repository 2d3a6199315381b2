"""Lengths of examples in tokens, and what a trainer's limit does to them.

A trainer goes by the same rules (`runner/trainers/tokenizing.py` of the agent): a conversation is
cut at the limit, and left out when nothing to learn remains; an answer is cut, and left out when
its prompt alone reaches the limit or, for a reward model, when the whole exceeds it.
"""

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Protocol

from windlass.datasets.chat_tokens import Messages, Span, is_learned, render_chat

_ANSWERS = ("chosen", "rejected", "completion")
# A space may lead a word; beyond ASCII most letters are tokens of their own.
_PIECE = re.compile(r" ?[!-~]{1,5}|.", re.DOTALL)
Row = dict[str, Any]


class Tokenizer(Protocol):
    """A counter of tokens: a chat template, and the tokens of its text."""

    name: str
    end_token: str

    def render(self, messages: Messages, tools: Any, add_generation_prompt: bool) -> str:
        """Returns a conversation as text; raises ValueError for one that is refused."""

    def encode(self, text: str) -> tuple[Sequence[int], Sequence[Span]]:
        """Returns ids of tokens, and where in the text each begins and ends."""


class ApproximateTokenizer:
    """Five letters a token, where no tokenizer is at hand."""

    name = "an approximation: up to 5 letters a token, no tokenizer was given"
    end_token = ""

    def render(self, messages: Messages, tools: Any, add_generation_prompt: bool) -> str:
        """Returns the texts of the messages, each under its role."""
        said = [f"<{message['role']}>\n{_text(message)}\n" for message in messages]
        asked = ["<assistant>\n"] if add_generation_prompt else []
        return "".join(([str(tools)] if tools else []) + said + asked)

    def encode(self, text: str) -> tuple[Sequence[int], Sequence[Span]]:
        """Returns zeros, and the pieces of words that stand for tokens."""
        spans = [piece.span() for piece in _PIECE.finditer(text)]
        return [0] * len(spans), spans


@dataclass
class TokenCounts:
    """Tokens of every example; `kept` counts the rows that are left to train on.

    A conversation is several rows where its template drops something from the past. `trained` are
    the tokens of an epoch as a trainer counts them: those of the rows that are kept, up to the
    limit, of both answers where there are two.
    """

    tokenizer: Tokenizer
    limit: int | None
    # Whether an answer beyond the limit is left out instead of cut.
    whole: bool = False
    lengths: "array[int]" = field(default_factory=lambda: array("q"))
    truncated: int = 0
    left_out: int = 0
    kept: int = 0
    trained: int = 0
    _rows: int = 0
    _too_long: int = 0

    @property
    def all_too_long(self) -> bool:
        """True if a training refuses the file, since every row exceeds the limit."""
        return bool(self._rows) and self._too_long == self._rows

    @property
    def is_exact(self) -> bool:
        """True if a model's own tokenizer counts."""
        return not isinstance(self.tokenizer, ApproximateTokenizer)

    def add(self, row: Row) -> None:
        """Counts a trainer's row; raises ValueError for one that the chat template refuses."""
        if "messages" in row:
            self._add_chat(row)
        else:
            self._add_answers(row)

    def quantile(self, share: float) -> int:
        """The length that this share of the examples does not exceed; 0 without examples."""
        found = sorted(self.lengths)
        return found[max(0, ceil(share * len(found)) - 1)] if found else 0

    def _add_chat(self, row: Row) -> None:
        rendered = render_chat(
            lambda part, asks: self.tokenizer.render(part, row.get("tools"), asks),
            row["messages"],
            row["weights"],
            end_token=self.tokenizer.end_token,
        )
        lengths = []
        for each in rendered:
            _, offsets = self.tokenizer.encode(each.text)
            lengths.append(len(offsets))
            self._rows += 1
            is_long = self.limit is not None and len(offsets) > self.limit
            self._too_long += is_long
            if any(is_learned(span, each.learned) for span in offsets[: self.limit]):
                self.kept += 1
                self.trained += self._cut(len(offsets))
                self.truncated += is_long
            else:
                self.left_out += 1
        self.lengths.append(max(lengths, default=0))

    def _add_answers(self, row: Row) -> None:
        prompt, tools = row["prompt"], row.get("tools")
        answers = [[*prompt, *row[name]] for name in _ANSWERS if name in row]
        texts = [self.tokenizer.render(prompt, tools, True)]
        texts += [self.tokenizer.render(answer, tools, False) for answer in answers]
        lengths = [len(self.tokenizer.encode(text)[0]) for text in texts]
        self.lengths.append(max(lengths))
        self._rows += 1
        is_long = self.limit is not None and max(lengths) > self.limit
        if self.limit is not None and (lengths[0] >= self.limit or (is_long and self.whole)):
            self.left_out += 1
            self._too_long += 1
            return
        self.truncated += is_long
        self._too_long += is_long
        self.kept += 1
        self.trained += sum(map(self._cut, lengths[1:]))

    def _cut(self, length: int) -> int:
        return length if self.limit is None else min(length, self.limit)


def _text(message: Row) -> str:
    calls = message.get("tool_calls")
    return f"{message['content']}{calls}" if calls else str(message["content"])
