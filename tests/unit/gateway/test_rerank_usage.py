"""A query that is read with each of its documents is counted with each of them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.usage.v1 import usage_pb2
from windlass.gateway.inference.head import read_head
from windlass.gateway.inference.meter import UsageBounds
from windlass.gateway.inference.sse import TokenUsage


def counted(tokens: int, **asked: Any) -> int:
    """Tokens of a prompt that are believed of an engine."""
    body = msgspec.json.encode({"model": "rank", **asked})
    bounds = UsageBounds.of(usage_pb2.USAGE_KIND_SCORE, read_head(body), body)
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
