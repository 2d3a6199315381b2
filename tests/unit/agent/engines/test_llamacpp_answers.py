"""Answers of `llama-server` become OpenAI's, chunk by chunk."""

import asyncio
import json
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest

from windlass.inference_api.errors import ApiError
from windlass_agent.engines.llamacpp import answers

TIMINGS = {"cache_n": 3, "prompt_n": 4, "predicted_n": 2, "predicted_ms": 1.5}


async def read(text: str, **options: Any) -> list[str]:
    stream = aiohttp.StreamReader(Mock(_reading_paused=False), 2**16, loop=asyncio.get_event_loop())
    stream.feed_data(text.encode())
    stream.feed_eof()
    shape = answers.AnswerShape(model="m", **options)
    return [chunk.decode() async for chunk in answers.chunks(stream, shape)]


def chunk(**fields: Any) -> str:
    return f"data: {json.dumps({'choices': [{'delta': {'content': 'x'}}]} | fields)}\n\n"


async def test_usage_is_in_every_chunk_that_has_an_answer() -> None:
    last = chunk(choices=[], usage={"completion_tokens": 2}, timings=TIMINGS)
    text = chunk(timings=TIMINGS) + last + "data: [DONE]\n\n"
    first, second, end = await read(text, every_usage=True)
    found = json.loads(first[6:])
    assert "timings" not in found
    assert found["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    assert json.loads(second[6:])["usage"] == {"completion_tokens": 2}
    assert found["model"] == "m"
    assert end == "data: [DONE]\n\n"
    assert "usage" not in json.loads((await read(text))[0][6:])


async def test_what_keeps_the_connection_passes_and_an_error_ends_the_stream() -> None:
    assert await read(": ping\n\n") == [": ping\n\n"]
    with pytest.raises(ApiError, match="no more memory"):
        await read(chunk() + 'data: {"error": {"code": 500, "message": "no more memory"}}\n\n')


def test_alternatives_are_as_many_as_were_asked_for() -> None:
    token = {"id": 5, "token": "x", "logprob": -1, "top_logprobs": [{"id": 5, "token": "x"}]}
    body = {"choices": [{"logprobs": {"content": [token]}}], "timings": TIMINGS}
    none = answers.whole(json.dumps(body).encode(), answers.AnswerShape(model="m", top=0))
    assert none["choices"][0]["logprobs"]["content"] == [
        {"token": "x", "logprob": -1, "top_logprobs": []}
    ]
    one = answers.whole(json.dumps(body).encode(), answers.AnswerShape(model="m", top=1))
    assert one["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == [{"token": "x"}]


@pytest.mark.parametrize("answer", [None, [], {}, {"error": "x"}, {"error": {"message": ""}}])
def test_a_refusal_without_words_is_one_all_the_same(answer: Any) -> None:
    assert answers.refusal(answer, 400).message == "The engine refused the request."


def test_a_prompt_that_is_too_long_has_openai_s_code() -> None:
    error = {"error": {"message": "too long", "type": "exceed_context_size_error", "code": 400}}
    assert answers.refusal(error, 400).code == "context_length_exceeded"
