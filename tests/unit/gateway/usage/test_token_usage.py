"""Usage as engines report it, its bounds, and estimates of what they do not report."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.usage.v1 import usage_pb2
from windlass.gateway.inference.head import read_head
from windlass.gateway.inference.meter import CHAT, CONTEXT_TOKENS, TOKENS_PER_SECOND, UsageBounds
from windlass.gateway.inference.sse import Show, UsageFilter
from windlass.gateway.usage.token_usage import TokenUsage, chunk_usage, read_usage, usage_of
from windlass.inference_api.images.bounds import (
    ASSUMED_IMAGE_TOKENS,
    likely_tokens,
    most_tokens,
)
from windlass.inference_api.images.dimensions import Dimensions

COUNTS = {"prompt_tokens": 9, "completion_tokens": 5}
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, TokenUsage(9, 5)),
        ({"prompt_tokens_details": {"cached_tokens": 8}}, TokenUsage(9, 5, 8)),
        ({"completion_tokens_details": {"reasoning_tokens": 4}}, TokenUsage(9, 5, 0, 4)),
        ({"prompt_tokens_details": {"cached_tokens": None}}, TokenUsage(9, 5)),
        ({"prompt_tokens_details": None, "completion_tokens_details": None}, TokenUsage(9, 5)),
        ({"estimated": True}, TokenUsage(9, 5, estimated=True)),
        ({"estimated": "yes"}, TokenUsage(9, 5)),
        ({"prompt_tokens": "9"}, TokenUsage()),
    ],
)
def test_details_are_read_whole_and_streamed(told: dict[str, Any], expected: TokenUsage) -> None:
    usage = COUNTS | told
    assert usage_of(json.dumps({"usage": usage}).encode()) == expected
    for separators in (None, (",", ":")):
        for choices in ([{"index": 0}], []):
            chunk = {"id": "x", "choices": choices, "usage": usage}
            events = UsageFilter(Show.NOTHING)
            events.feed(b"data: %b\n\n" % json.dumps(chunk, separators=separators).encode())
            assert events.usage == expected


@given(ANYTHING, ANYTHING, ANYTHING)
def test_no_detail_loses_the_counts(cached: Any, details: Any, estimated: Any) -> None:
    usage = COUNTS | {
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": details,
        "estimated": estimated,
    }
    found = usage_of(json.dumps({"usage": usage}).encode())
    assert (found.prompt_tokens, found.completion_tokens) == (9, 5)
    assert type(found.cached_tokens) is type(found.reasoning_tokens) is int


def test_what_is_nested_too_deep_to_be_read_counts_nothing() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    usage = b'{"prompt_tokens":9,"prompt_tokens_details":%b}' % deep
    assert read_usage(usage) == TokenUsage()
    assert usage_of(b'{"usage":%b}' % usage) == TokenUsage()
    assert chunk_usage(b'{"usage":%b}' % usage) is None
    events = UsageFilter(Show.NOTHING, choices=2)
    for event in (b'{"usage":%b,"x":1}' % usage, b'{"error":%b}' % deep):
        assert events.feed(b"data: %b\n\n" % event)
    assert events.usage == TokenUsage()


def test_details_of_several_answers_are_added_and_those_of_a_prompt_are_not() -> None:
    events = UsageFilter(Show.NOTHING, choices=2)
    for index in (0, 1):
        usage = COUNTS | {
            "prompt_tokens_details": {"cached_tokens": 8},
            "completion_tokens_details": {"reasoning_tokens": 2},
        }
        chunk = {"id": "x", "choices": [{"index": index}], "usage": usage}
        events.feed(b"data: %b\n\n" % json.dumps(chunk).encode())
    assert events.usage == TokenUsage(9, 10, 8, 4)


def bounds(kind: int = CHAT, **fields: Any) -> tuple[UsageBounds, int]:
    body = json.dumps({"model": "m", **fields}).encode()
    return UsageBounds.of(kind, read_head(body), len(body)), len(body)


@given(st.integers(), st.integers(), st.integers(), st.integers())
def test_parts_are_bounded_by_what_they_are_a_part_of(
    prompt: int, completion: int, cached: int, reasoning: int
) -> None:
    found = bounds()[0].within(TokenUsage(prompt, completion, cached, reasoning), 100)
    assert 0 <= found.cached_tokens <= found.prompt_tokens
    assert 0 <= found.reasoning_tokens <= found.completion_tokens


@pytest.mark.parametrize(
    ("kind", "fields", "seconds", "answer_bytes", "completion"),
    [
        (CHAT, {}, 2, 0, 2 * TOKENS_PER_SECOND),
        (CHAT, {"n": 3}, 2, 0, 6 * TOKENS_PER_SECOND),
        (CHAT, {"max_tokens": 7}, 2, 0, 7),
        (CHAT, {"max_tokens": 7, "n": 2}, 2, 0, 14),
        (CHAT, {"max_tokens": 7, "ignore_eos": True}, 2, 0, 7),
        (CHAT, {}, 10**9, 0, CONTEXT_TOKENS),
        (CHAT, {}, 2, 40, 10),
        (CHAT, {}, 0, 3, 1),
        (CHAT, {}, -1, 0, 0),
        (usage_pb2.USAGE_KIND_COMPLETION, {}, 2, 0, 16),
        (usage_pb2.USAGE_KIND_EMBEDDING, {"input": "x"}, 2, 4000, 0),
    ],
)
def test_an_estimate_is_by_bytes_and_time_within_what_was_asked(
    kind: int, fields: dict[str, Any], seconds: float, answer_bytes: int, completion: int
) -> None:
    found, size = bounds(kind, **fields)
    expected = TokenUsage(size // 4, completion, estimated=True)
    assert found.estimate(seconds, answer_bytes) == expected


IMAGES = [Dimensions("image/png", 1, 1), Dimensions("image/jpeg", 2800, 2800)]


def test_images_stand_for_tokens_by_their_pixels() -> None:
    found, size = bounds()
    seen = found.with_images(IMAGES)
    assert seen.estimate(0, 0).prompt_tokens == size // 4 + 256 + 10_000
    lied = TokenUsage(2**40, 0)
    text, image = found.within(lied, 0).prompt_tokens, seen.within(lied, 0).prompt_tokens
    assert image - text == 2 * 8192 + 2800 * 2800 // 196
    # Of one that is small on the wire and large in a prompt.
    assert seen.within(TokenUsage(9000, 0), 0).prompt_tokens == 9000


@given(st.lists(st.tuples(st.integers(1, 2**13), st.integers(1, 2**12)), min_size=1, max_size=16))
def test_no_image_is_free_and_no_estimate_above_its_bound(sizes: list[tuple[int, int]]) -> None:
    images = [Dimensions("image/png", *size) for size in sizes]
    assert 0 < likely_tokens(images) <= most_tokens(images) < 2**25


def test_a_reservation_is_not_by_the_bytes_of_images() -> None:
    head = read_head(b'{"model":"m","max_tokens":1}')
    assert head.estimate(400, 2) == head.estimate(400) + 2 * ASSUMED_IMAGE_TOKENS
