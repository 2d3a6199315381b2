"""Requests on their way to a serving stack of others, and its answers on their way back."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.inference_api.errors import ApiError
from windlass_agent.engines.adopted.translation import (
    ModelNames,
    StackAnswer,
    StackFailed,
    body_for_stack,
    refusal,
)

NAMES = ModelNames(ours="our-model", theirs="org/their-model")
CHUNK = {"id": "c", "model": NAMES.theirs, "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
LONG = "context_length_exceeded"
USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def answer(dialect: str = "openai", body_bytes: int = 400) -> StackAnswer:
    return StackAnswer(names=NAMES, dialect=dialect, body_bytes=body_bytes)


def test_a_body_names_the_model_as_its_stack_does_and_nothing_of_ours() -> None:
    asked = {
        "model": NAMES.ours,
        "cache_salt": "secret",
        "priority": 0,
        "service_tier": "flex",
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "seed": 2**53 + 1,
    }
    sent = json.loads(body_for_stack(encoded(asked), NAMES, dialect="openai"))
    assert sent == {
        "model": NAMES.theirs,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 2**53 + 1,
    }
    sent = json.loads(body_for_stack(encoded(asked), NAMES, dialect="vllm"))
    assert sent == asked | {"model": NAMES.theirs}


@pytest.mark.parametrize("asked", [{"model": "another"}, {"model": None}, {}, {"model": ["a"]}])
def test_a_body_for_another_model_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        body_for_stack(encoded(asked), NAMES, dialect="openai")
    assert refused.value.code == "model_not_found"


@given(st.binary(max_size=200))
def test_bytes_that_are_no_request_are_refused(body: bytes) -> None:
    with pytest.raises(ApiError):
        body_for_stack(body, NAMES, dialect="openai")
    # An object without a word is an answer without one.
    with contextlib.suppress(ApiError):
        assert json.loads(answer().whole(body))["usage"]


def test_an_answer_has_our_name_and_the_stacks_usage() -> None:
    whole = {"model": NAMES.theirs, "choices": [], "usage": USAGE}
    assert json.loads(answer().whole(encoded(whole))) == whole | {"model": NAMES.ours}


@pytest.mark.parametrize("usage", [{}, {"usage": None}, {"usage": {}}, {"usage": [7]}])
def test_usage_that_a_stack_does_not_count_is_estimated_and_says_so(usage: dict[str, Any]) -> None:
    choices = [{"message": {"content": "x" * 400}}, {"message": {"content": None}}]
    found = json.loads(answer().whole(encoded({"choices": choices} | usage)))["usage"]
    assert found["estimated"] is True
    assert found["prompt_tokens"] == 100
    assert 90 < found["completion_tokens"] < 120
    assert found["total_tokens"] == found["prompt_tokens"] + found["completion_tokens"]


RANKED = {"model": NAMES.theirs, "results": [{"index": 1, "relevance_score": 0.9}]}


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({"prompt_tokens": 7, "total_tokens": 7}, {"prompt_tokens": 7, "total_tokens": 7}),
        # KServe's, and vLLM's of some releases.
        ({"total_tokens": 9}, {"prompt_tokens": 9, "total_tokens": 9}),
        (None, {"prompt_tokens": 100, "completion_tokens": 0, "total_tokens": 100,
                "estimated": True}),
    ],
)  # fmt: skip
def test_ranks_cost_what_was_read(usage: Any, told: dict[str, Any]) -> None:
    found = json.loads(answer().whole(encoded(RANKED | {"usage": usage})))
    assert found == RANKED | {"model": NAMES.ours, "usage": told}


def test_a_total_alone_says_nothing_of_what_was_written() -> None:
    whole = {"choices": [{"message": {"content": "Hi"}}], "usage": {"total_tokens": 9}}
    assert json.loads(answer().whole(encoded(whole)))["usage"]["estimated"] is True


def test_chunks_have_usage_so_far_until_the_stack_has_counted() -> None:
    spoken = answer()
    found = [json.loads(spoken.chunk(encoded(CHUNK | {"usage": None}))) for _ in range(3)]
    assert [one["usage"]["completion_tokens"] for one in found] == [1, 2, 3]
    assert {one["model"] for one in found} == {NAMES.ours}
    last = spoken.chunk(encoded({"usage": USAGE, "choices": [], "id": "c"}))
    assert json.loads(last)["usage"] == USAGE
    # Where the gateway looks for it first.
    assert last.endswith(b'"usage":' + encoded(USAGE) + b"}")


def test_chunks_of_vllm_keep_their_usage() -> None:
    chunk = CHUNK | {"usage": USAGE}
    assert json.loads(answer("vllm").chunk(encoded(chunk))) == chunk | {"model": NAMES.ours}


def test_chunks_of_vllm_without_usage_are_estimated_by_answer() -> None:
    spoken, both = answer("vllm"), []
    for index in (0, 1, 1):
        choices = [{"index": index, "delta": {"content": "Hi"}}]
        both.append(json.loads(spoken.chunk(encoded({"choices": choices})))["usage"])
    assert [one["completion_tokens"] for one in both] == [1, 1, 2]


def test_numbers_of_answers_that_nobody_asked_for_take_no_room() -> None:
    spoken = answer("vllm")
    for index in (0, -1, *range(10**6, 10**6 + 1000)):
        choices = [{"index": index, "delta": {"content": "Hi"}}]
        last = json.loads(spoken.chunk(encoded({"choices": choices})))["usage"]
    assert last["completion_tokens"] == 1002
    assert len(spoken._tokens) == 1


def test_a_stream_without_numbers_ends_with_the_estimate() -> None:
    spoken = answer()
    assert spoken.closing() == b""
    for _ in range(2):
        spoken.chunk(encoded(CHUNK))
    last = json.loads(spoken.closing())
    assert (last["id"], last["model"], last["choices"]) == ("c", NAMES.ours, [])
    assert (last["usage"]["completion_tokens"], last["usage"]["estimated"]) == (2, True)
    spoken.chunk(encoded(CHUNK | {"choices": [], "usage": USAGE}))
    assert spoken.closing() == b""


def test_long_chunks_are_more_than_a_token() -> None:
    choices = [{"delta": {"content": "x" * 400}}]
    found = json.loads(answer().chunk(encoded({"choices": choices})))
    assert 90 < found["usage"]["completion_tokens"] < 120


def test_an_error_that_is_null_is_none() -> None:
    assert json.loads(answer().chunk(encoded(CHUNK | {"error": None})))["choices"]


@pytest.mark.parametrize(
    "choices",
    [
        [{"delta": {"reasoning_content": "so"}}],
        [{"delta": {"reasoning": "so"}}],
        [{"delta": {"refusal": "so"}}],
        [{"delta": {"tool_calls": [0]}}],
        [{"text": "so"}],
        [{"text": "a", "index": 0}],
    ],
)
def test_everything_that_is_written_counts(choices: Any) -> None:
    found = json.loads(answer().chunk(encoded({"choices": choices})))
    assert found["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("choices", [[{"delta": {"role": "assistant"}}], 3, [7], None, [{}]])
def test_what_writes_nothing_counts_nothing(choices: Any) -> None:
    found = json.loads(answer().chunk(encoded({"choices": choices})))
    assert found["usage"]["completion_tokens"] == 0


def test_an_error_within_a_stream_is_an_error() -> None:
    with pytest.raises(StackFailed) as failed:
        answer().chunk(encoded({"error": {"message": "out of memory", "code": 500}}))
    assert b"out of memory" in failed.value.said


@pytest.mark.parametrize(
    ("status", "content", "expected"),
    [
        (400, {"error": {"message": "bad", "param": "n", "code": "c"}}, (400, "bad", "n", None)),
        (400, {"error": {"message": "x", "code": LONG}}, (400, "x", None, LONG)),
        (422, {"detail": "no"}, (422, "no", None, None)),
        (
            422,
            {"detail": [{"loc": ["body", "messages", 0, "role"], "msg": "Field required"}]},
            (422, "Field required", "messages.0.role", None),
        ),
        (422, {"detail": [{}]}, (422, "refused", None, None)),
        (429, {"error": "slow down"}, (429, "slow down", None, None)),
        (404, {"error": {"message": "org/their-model"}}, (503, "lost", None, "stack_lost_model")),
        (404, {"error": {"code": "model_not_found"}}, (503, "lost", None, "stack_lost_model")),
        (404, {"detail": "Not Found"}, (400, "does not answer such", None, None)),
        (404, None, (503, "not available", None, "stack_unavailable")),
        (503, {"error": "10.0.0.3:8000"}, (503, "not available", None, "stack_unavailable")),
        (500, {"error": "/srv/x.py"}, (500, "failed", None, "engine_error")),
        (502, None, (503, "not available", None, "stack_unavailable")),
        (418, None, (418, "refused", None, None)),
        (418, [1], (418, "refused", None, None)),
    ],
)
def test_a_refusal_says_what_is_wrong_with_the_request(
    status: int, content: Any, expected: tuple[int, str, str | None, str | None]
) -> None:
    error = refusal(b"<html>" if content is None else encoded(content), status, NAMES)
    code, words, param, reason = expected
    assert (error.status, error.param, error.code) == (code, param, reason)
    assert words in error.message
    assert "10.0.0.3" not in error.message


def test_a_key_that_a_stack_says_again_is_taken_out() -> None:
    names = ModelNames(ours="ours", theirs="theirs", key="sk-secret")
    error = refusal(encoded({"error": "bad key sk-secret"}), 400, names)
    assert error.message == "bad key ***"
    assert names.log(b"sk-secret") == "***"
    assert "sk-secret" not in repr(names)


def test_the_stacks_name_of_a_model_is_replaced_where_it_is_a_word() -> None:
    names = ModelNames(ours="ours", theirs="a")
    assert (
        names.in_text("a cat sat on `a`, a/b and /srv/a")
        == "ours cat sat on `ours`, a/b and /srv/a"
    )
