"""Answers of SGLang become the public model's, and its refusals OpenAI's."""

import asyncio
import json
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest

from windlass.inference_api.errors import ApiError
from windlass_agent.engines.sglang import answers


async def read(text: str) -> list[str]:
    stream = aiohttp.StreamReader(Mock(_reading_paused=False), 2**16, loop=asyncio.get_event_loop())
    stream.feed_data(text.encode())
    stream.feed_eof()
    return [chunk.decode() async for chunk in answers.chunks(stream, "ft:m")]


async def test_every_chunk_has_the_name_that_was_asked_for() -> None:
    said = {"id": "r", "model": "base", "choices": [{"delta": {"content": '"model":"base"'}}]}
    chunk, ping, end = await read(f"data: {json.dumps(said)}\n\n: ping\n\ndata: [DONE]\n\n")
    assert json.loads(chunk[6:]) == said | {"model": "ft:m"}
    assert (ping, end) == (": ping\n\n", "data: [DONE]\n\n")


async def test_a_stream_without_an_end_broke_off() -> None:
    with pytest.raises(ApiError) as refused:
        await read('data: {"model": "base"}\n\n')
    assert refused.value.status == 502
    with pytest.raises(ApiError, match="answer is none"):
        await read("data: <html>\n\n")


async def test_an_error_in_a_stream_has_its_own_status() -> None:
    error = {"object": "error", "message": "The request queue is full.", "type": "X", "code": 503}
    with pytest.raises(ApiError) as refused:
        await read(f"data: {json.dumps({'error': error})}\n\ndata: [DONE]\n\n")
    assert (refused.value.status, refused.value.code) == (503, "engine_overloaded")


@pytest.mark.parametrize(
    ("answer", "status", "message", "code"),
    [
        ({"object": "error", "message": "no", "code": 400}, 400, "no", None),
        ({"error": {"message": "no"}}, 400, "no", None),
        ({"error": "Unauthorized"}, 401, "Unauthorized", None),
        ({"message": "exceeds the model's maximum context length of 8"}, 400, "maximum context",
         "context_length_exceeded"),
        ({"message": "Internal server error: /path"}, 500, "failed to answer", "engine_error"),
        ({}, 400, "refused the request", None),
        ([], 400, "refused the request", None),
    ],
)  # fmt: skip
def test_refusals_of_all_its_forms_are_openai_s(
    answer: Any, status: int, message: str, code: str | None
) -> None:
    refused = answers.refusal(json.dumps(answer).encode(), status)
    assert (refused.status, refused.code) == (status, code)
    assert message in refused.message
    assert "/path" not in refused.message


def test_what_is_no_answer_is_not_passed_on() -> None:
    with pytest.raises(ApiError) as refused:
        answers.whole(b"<html>", "m")
    assert refused.value.status == 502
    assert json.loads(answers.whole(b'{"model": "base", "x": 1.50}', "m")) == {
        "model": "m",
        "x": 1.5,
    }
