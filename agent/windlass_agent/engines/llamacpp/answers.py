"""Answers of `llama-server` in OpenAI's shape, with usage in every chunk that asked for it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from windlass.inference_api.errors import ApiError
from windlass_agent.engines.boundary import END, event
from windlass_agent.engines.kept.events import DONE, events

_CODES = {"exceed_context_size_error": "context_length_exceeded"}
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, kw_only=True)
class AnswerShape:
    """Form of an answer that a request asked for."""

    model: str
    every_usage: bool = False
    top: int | None = None
    """Alternatives of each token; None: no log-probabilities."""


def whole(content: bytes, shape: AnswerShape) -> dict[str, Any]:
    """An answer that is not streamed."""
    return _shaped(_decode(content), shape)


async def chunks(stream: aiohttp.StreamReader, shape: AnswerShape) -> AsyncIterator[bytes]:
    """Yields server-sent events; raises ApiError for an error in their midst."""
    async for comment, data in events(stream):
        if comment:
            yield comment + b"\n\n"
        elif data == DONE:
            yield END
        else:
            chunk = _decode(data)
            if "error" in chunk:
                raise refusal(chunk, 500)
            yield event(_chunk(chunk, shape))


def refusal(answer: Any, status: int) -> ApiError:
    """A refusal of the server in OpenAI's shape."""
    error = answer.get("error") if isinstance(answer, dict) else None
    error = error if isinstance(error, dict) else {}
    message = str(error.get("message") or "The engine refused the request.")
    return ApiError(message, status=status, code=_CODES.get(str(error.get("type"))))


def _chunk(chunk: dict[str, Any], shape: AnswerShape) -> dict[str, Any]:
    timings = chunk.get("timings")
    shaped = _shaped(chunk, shape)
    if shape.every_usage and timings and shaped["choices"]:
        shaped["usage"] = _usage(timings)
    return shaped


def _shaped(answer: dict[str, Any], shape: AnswerShape) -> dict[str, Any]:
    """The answer without the server's own fields, by the name that was asked for."""
    answer.pop("timings", None)
    answer["model"] = shape.model
    if shape.top is not None:
        for choice in answer["choices"]:
            for token in (choice.get("logprobs") or {}).get("content") or ():
                token.pop("id", None)
                token["top_logprobs"] = [
                    {name: value for name, value in other.items() if name != "id"}
                    for other in token.get("top_logprobs", ())[: shape.top]
                ]
    return answer


def _usage(timings: dict[str, Any]) -> dict[str, Any]:
    """Tokens so far: of the prompt, what was read now and what a place knew already."""
    cached, completion = int(timings["cache_n"]), int(timings["predicted_n"])
    prompt = int(timings["prompt_n"]) + cached
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
