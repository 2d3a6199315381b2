"""Usage of several answers, whether chunks count their own or all; and of pairs of texts."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.usage.v1 import usage_pb2
from windlass.gateway.inference.head import read_head
from windlass.gateway.inference.meter import CHAT, CONTEXT_TOKENS, UsageBounds
from windlass.gateway.inference.sse import Show, UsageFilter
from windlass.gateway.usage.token_usage import TokenUsage
from windlass.inference_api.requests import MAX_CHOICES

COMPLETION = CHAT + 1
SHOWS = [Show.NOTHING, Show.LAST, Show.ALL]


def event(index: int | None, prompt: int, completion: int, *, spaced: bool = False) -> bytes:
    choices = [] if index is None else [{"index": index, "delta": {"content": "a"}}]
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    chunk: dict[str, Any] = {"id": "x", "choices": choices, "usage": usage}
    return b"data: %b\n\n" % json.dumps(chunk, separators=None if spaced else (",", ":")).encode()


@pytest.mark.parametrize("show", SHOWS)
@pytest.mark.parametrize("spaced", [False, True])
def test_a_stream_that_is_cut_is_charged_for_all_answers(show: Show, spaced: bool) -> None:
    events = UsageFilter(show, choices=16)
    for count in range(1, 101):
        for index in range(16):
            events.feed(event(index, 10, count, spaced=spaced))
    assert events.usage == TokenUsage(10, 1600)
    events.feed(event(None, 10, 1601))
    assert events.usage == TokenUsage(10, 1601)


@pytest.mark.parametrize("show", SHOWS)
def test_chunks_that_count_all_answers_are_not_added_up(show: Show) -> None:
    events = UsageFilter(show)
    for count in range(1, 33):
        events.feed(event(count % 16, 10, count))
    assert events.usage == TokenUsage(10, 32)


def test_prompts_of_one_request_are_charged_each_once() -> None:
    events = UsageFilter(Show.NOTHING, choices=2)
    for index, (prompt, completion) in enumerate([(5, 1), (5, 2), (7, 3), (7, 4)]):
        events.feed(event(index, prompt, completion))
    assert events.usage == TokenUsage(12, 10)


def test_answers_that_cannot_be_are_not_remembered() -> None:
    events = UsageFilter(Show.NOTHING, choices=1)
    for index in (-1, MAX_CHOICES, 10**9):
        events.feed(event(index, 1, 1))
    assert not events._each
    events.feed(b'data: {"id":"x","choices":[{"index":"a"}],"usage":{"prompt_tokens":1}}\n\n')
    assert events.usage == TokenUsage(1, 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=20), st.integers(1, 60))
def test_the_sum_is_that_of_the_latest_of_each_at_every_cut(
    chunks: list[tuple[int, int]], size: int
) -> None:
    data = b"".join(event(index, 9, count) for index, count in chunks)
    events = UsageFilter(Show.NOTHING, choices=4)
    for at in range(0, len(data), size):
        events.feed(data[at : at + size])
    assert events.usage == TokenUsage(9 if chunks else 0, sum(dict(chunks).values()))


def bounded(kind: int, usage: TokenUsage, answer: int, **fields: Any) -> TokenUsage:
    body = json.dumps({"model": "m", **fields}).encode()
    return UsageBounds.of(kind, read_head(body), len(body)).within(usage, answer)


@pytest.mark.parametrize(
    "hiding",
    [
        {"allowed_token_ids": [0]},
        {"ignore_eos": True},
        {"min_tokens": 5},
        {"logit_bias": {"2": 100}},
        {"skip_special_tokens": True},
    ],
)
def test_tokens_without_text_are_charged_as_far_as_they_were_asked_for(
    hiding: dict[str, Any],
) -> None:
    said = TokenUsage(1, 10**9)
    assert bounded(CHAT, said, 100, max_tokens=400, n=16, **hiding).completion_tokens == 6400
    assert bounded(CHAT, said, 100, n=2, **hiding).completion_tokens == 2 * CONTEXT_TOKENS
    assert bounded(COMPLETION, said, 9, max_tokens=5, **hiding).completion_tokens == 80
    assert bounded(COMPLETION, said, 9, **hiding).completion_tokens == 256
    assert bounded(CHAT, TokenUsage(1, 7), 0, max_tokens=9, **hiding).completion_tokens == 7


def test_other_answers_are_bounded_by_their_bytes() -> None:
    said = TokenUsage(1, 10**9)
    off = {"ignore_eos": False, "min_tokens": 0, "logit_bias": {}, "allowed_token_ids": None}
    for fields in ({}, off):
        assert bounded(CHAT, said, 100, max_tokens=400, n=16, **fields).completion_tokens == 100
        assert bounded(COMPLETION, said, 100, max_tokens=5, **fields).completion_tokens == 100


def test_numbers_with_a_point_count_as_well() -> None:
    said = TokenUsage(1, 10**9)
    assert bounded(CHAT, said, 10**6, max_tokens=10.0, n=16.0).completion_tokens == 160


def counted(tokens: int, **asked: Any) -> int:
    """Tokens of a prompt that are believed of an engine."""
    body = msgspec.json.encode({"model": "rank", **asked})
    bounds = UsageBounds.of(usage_pb2.USAGE_KIND_SCORE, read_head(body), len(body))
    return bounds.within(TokenUsage(tokens, 0), 100).prompt_tokens


@given(st.integers(1, 300), st.integers(1, 200))
def test_every_pair_is_counted(words: int, documents: int) -> None:
    query, texts = "a " * words, ["b"] * documents
    pairs = documents * (words + 1 + 4)
    assert counted(pairs, query=query, documents=texts) == pairs
    body = msgspec.json.encode({"model": "rank", "query": query, "documents": texts})
    assert read_head(body).estimate(len(body)) * 4 >= documents * words


def test_no_more_than_could_be_read_is_believed() -> None:
    assert counted(10**9, query="a", documents=["b"] * 10) < 2000


@pytest.mark.parametrize("asked", [{"query": "a"}, {"documents": 3, "query": {}}, {}])
def test_what_is_no_list_counts_nothing_beside_the_body(asked: dict[str, Any]) -> None:
    assert counted(10, **asked) == 10
