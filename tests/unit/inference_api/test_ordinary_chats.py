"""A chat that is let through at once is one that the whole check lets through as well."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.inference_api import vllm
from windlass.inference_api.ordinary import is_ordinary

CHATS = "/v1/chat/completions"
HELLO = {"role": "user", "content": "hello"}
NUMBERS = st.one_of(
    st.none(), st.integers(-3, 200), st.floats(-3, 3), st.booleans(), st.just(2**70), st.just("1")
)
TEXTS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.text(max_size=5), st.integers(), st.just([])
)
MESSAGES = st.one_of(
    st.just(HELLO),
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "developer", "assistant", "tool", "x", None])},
        optional={
            "content": st.one_of(TEXTS, st.just([{"type": "text", "text": "a", "uuid": "b"}])),
            "name": TEXTS,
            "tool_calls": st.just([{}]),
            "audio": st.just({"id": "a"}),
        },
    ),
)
BODIES = st.fixed_dictionaries(
    {"model": st.just("m"), "messages": st.lists(MESSAGES, max_size=3)},
    optional={
        **dict.fromkeys(
            ["n", "temperature", "top_p", "presence_penalty", "frequency_penalty", "max_tokens"],
            NUMBERS,
        ),
        **dict.fromkeys(
            ["max_completion_tokens", "min_tokens", "ignore_eos", "stream", "top_logprobs"], NUMBERS
        ),
        **dict.fromkeys(["user", "stop", "store", "priority", "chat_template", "tools"], TEXTS),
    },
)


@given(BODIES)
def test_what_is_ordinary_passes_the_check(body: dict[str, Any]) -> None:
    raw = msgspec.json.encode(body)
    if is_ordinary(raw):
        vllm.check_chat_in_full(raw)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"max_completion_tokens": 9, "temperature": 0, "top_p": 0.5, "n": 2, "stream": True},
        {"max_tokens": 9, "user": "u", "presence_penalty": 1, "frequency_penalty": -1},
        {"messages": [{"role": "system", "content": ""}, HELLO]},
        {"min_tokens": 3, "ignore_eos": True},
    ],
)
def test_it_is_what_most_clients_send(more: dict[str, Any]) -> None:
    body = msgspec.json.encode({"model": "m", "messages": [HELLO], **more})
    assert is_ordinary(body)
    vllm.check(CHATS, body)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b'{"model":"m","messages":' + b"[" * 100_000]
)
def test_what_is_no_chat_is_not_ordinary(body: bytes) -> None:
    assert not is_ordinary(body)
