"""Completions of token ids, as engines of the kind vLLM take and answer them; pure."""

from collections.abc import Mapping
from struct import pack, unpack
from typing import Any

from windlass.tuning_api.trainers.records import SampledSequence, SampleRequest


def asked(request: SampleRequest, first: int, count: int) -> dict[str, Any]:
    """The body for continuations `first` to before `first + count`.

    A seed is that of the first of them: engines add one for each further.
    """
    body: dict[str, Any] = {
        "model": request.base_model,
        "prompt": list(unpack(f"<{request.prompt.shape[0]}i", request.prompt.data)),
        "n": count,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "logprobs": 0,
        "return_token_ids": True,
    }
    if request.top_k > 0:
        body["top_k"] = request.top_k
    if request.stop_strings:
        body["stop"] = list(request.stop_strings)
    if request.stop_tokens:
        body["stop_token_ids"] = list(request.stop_tokens)
    if request.seed is not None:
        body["seed"] = (request.seed + first) % 2**63
    return body


def sequences(answer: Mapping[str, Any], count: int) -> list[SampledSequence]:
    """The continuations of an answer; raises KeyError, TypeError or ValueError for another."""
    choices = sorted(answer["choices"], key=lambda one: one["index"])
    if len(choices) != count:
        raise ValueError(f"{len(choices)} continuations and not {count}")
    return [_sequence(one) for one in choices]


def _sequence(choice: Mapping[str, Any]) -> SampledSequence:
    tokens, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
    if len(tokens) != len(logprobs):
        raise ValueError("its log-probabilities are of other tokens")
    return SampledSequence(
        tokens=pack(f"<{len(tokens)}i", *tokens),
        logprobs=pack(f"<{len(logprobs)}f", *logprobs),
        was_stopped=choice["finish_reason"] == "stop",
    )
