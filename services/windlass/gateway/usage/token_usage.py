"""Token counts of requests as engines report them, whatever else a report holds."""

from typing import Any

import msgspec


class TokenUsage(msgspec.Struct):
    """Token counts of a request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    # Of the prompt, what the engine knew from before.
    cached_tokens: int = 0
    # Of the completion, what the model thought before it answered.
    reasoning_tokens: int = 0
    # Some of it was not counted by an engine.
    estimated: bool = False

    def at_most(self, most: int) -> "TokenUsage":
        """The usage with no count above `most`."""
        return TokenUsage(
            min(self.prompt_tokens, most),
            min(self.completion_tokens, most),
            min(self.cached_tokens, most),
            min(self.reasoning_tokens, most),
            self.estimated,
        )


class _Reported(msgspec.Struct):
    """Token counts as engines report them; vLLM's may be null."""

    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    # Of any type: counts are not lost for what else an engine says.
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None
    estimated: Any = None

    def counts(self) -> TokenUsage:
        return TokenUsage(
            self.prompt_tokens or 0,
            self.completion_tokens or 0,
            _detail(self.prompt_tokens_details, "cached_tokens"),
            _detail(self.completion_tokens_details, "reasoning_tokens"),
            self.estimated is True,
        )


class _Whole(msgspec.Struct):
    usage: _Reported | None = None


class _Choice(msgspec.Struct):
    index: int = 0


class _Chunk(msgspec.Struct):
    usage: _Reported
    choices: list[_Choice] = []


# Of what an engine says, which may be nested however deep.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_usage = msgspec.json.Decoder(_Reported)
_whole = msgspec.json.Decoder(_Whole)
_chunk = msgspec.json.Decoder(_Chunk)


def read_usage(usage: bytes) -> TokenUsage:
    """The counts of a usage object; zeros for what is none."""
    try:
        return _usage.decode(usage).counts() if usage else TokenUsage()
    except UNREADABLE:
        return TokenUsage()


def usage_of(body: bytes) -> TokenUsage:
    """The usage of a whole response; zeros when it has none."""
    try:
        usage = _whole.decode(body).usage
        return usage.counts() if usage else TokenUsage()
    except UNREADABLE:
        return TokenUsage()


def chunk_usage(chunk: bytes) -> tuple[int | None, TokenUsage] | None:
    """The number of the answer that a chunk is of, None for all, and its usage.

    None for what is no such chunk.
    """
    try:
        read = _chunk.decode(chunk)
    except UNREADABLE:
        return None
    return read.choices[0].index if read.choices else None, read.usage.counts()


def added(prompts: list[TokenUsage], answers: list[TokenUsage]) -> TokenUsage:
    """The sum of one report of each prompt and one of each answer."""
    return TokenUsage(
        sum(one.prompt_tokens for one in prompts),
        sum(one.completion_tokens for one in answers),
        sum(one.cached_tokens for one in prompts),
        sum(one.reasoning_tokens for one in answers),
        any(one.estimated for one in answers),
    )


def _detail(details: Any, name: str) -> int:
    count = details.get(name) if isinstance(details, dict) else None
    return count if type(count) is int else 0
