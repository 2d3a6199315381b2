"""Requests and answers of an engine that takes token ids; pure."""

import math
from collections.abc import Mapping, Sequence
from struct import pack, unpack
from typing import Any

from windlass.tuning_api.trainers.records import SampledSequence, SampleRequest, Samples, TopK

Pair = tuple[int, float]


def parts(request: SampleRequest, most: int) -> list[tuple[int, int]]:
    """The first continuation of each request to the engine, and their number, at most `most`.

    Without chance all are one, and asked for once.
    """
    count = request.count if request.temperature else 1
    return [(first, min(most, count - first)) for first in range(0, count, most)]


def asked_of_prompt(request: SampleRequest, model: str) -> dict[str, Any] | None:
    """The body for what is told of the prompt itself; None where nothing is wanted."""
    if not _tells_prompt(request):
        return None
    params = {"max_tokens": 1, "temperature": 0, "prompt_logprobs": request.topk_prompt_logprobs}
    return {"model": model, "token_ids": list(_prompt(request)), "sampling_params": params}


def asked(request: SampleRequest, model: str, first: int, count: int) -> dict[str, Any]:
    """The body for continuations `first` to before `first + count` of a request.

    A seed is that of the first of them: engines add one for each further.
    """
    params: dict[str, Any] = {
        "n": count,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_k": request.top_k,
        "top_p": request.top_p,
        "logprobs": request.topk_sample_logprobs,
        "stop": list(request.stop_strings),
        "stop_token_ids": list(request.stop_tokens),
    }
    if request.seed is not None:
        params["seed"] = (request.seed + first) % 2**63
    return {"model": model, "token_ids": list(_prompt(request)), "sampling_params": params}


def samples_of(
    told: Mapping[str, Any] | None, answers: Sequence[Mapping[str, Any]], request: SampleRequest
) -> Samples:
    """The port's samples; raises KeyError, TypeError or ValueError for what is no such answer."""
    choices = [choice for answer in answers for choice in answer["choices"]]
    if request.temperature == 0:
        choices *= request.count
    if len(choices) != request.count:
        raise ValueError(f"{len(choices)} continuations and not {request.count}")
    scores, ranked = None, None
    if told is not None:
        rows = told["prompt_logprobs"]
        scores, ranked = _prompt_scores(rows, _prompt(request), request.topk_prompt_logprobs)
    return Samples(
        sequences=[_sequence(choice, request.topk_sample_logprobs) for choice in choices],
        prompt_logprobs=scores if request.with_prompt_logprobs else None,
        topk_prompt_logprobs=ranked,
    )


def _tells_prompt(request: SampleRequest) -> bool:
    return request.with_prompt_logprobs or request.topk_prompt_logprobs > 0


def _prompt(request: SampleRequest) -> tuple[int, ...]:
    return unpack(f"<{request.prompt.shape[0]}i", request.prompt.data)


def _sequence(choice: Mapping[str, Any], k: int) -> SampledSequence:
    tokens, content = choice["token_ids"], choice["logprobs"]["content"]
    if [one["token_id"] for one in content] != tokens:
        raise ValueError("its log-probabilities are of other tokens")
    told = [[(o["token_id"], o["logprob"]) for o in one["top_logprobs"]] for one in content]
    ranked = [_best(pairs, k) for pairs in told]
    return SampledSequence(
        tokens=pack(f"<{len(tokens)}i", *tokens),
        logprobs=_floats([one["logprob"] for one in content]),
        was_stopped=choice["finish_reason"] == "stop",
        topk=_topk(ranked, k),
    )


def _prompt_scores(
    rows: Sequence[Mapping[str, Any] | None], prompt: Sequence[int], k: int
) -> tuple[bytes, TopK | None]:
    """The log-probability of each token and the likeliest ones; nothing comes before the first."""
    if len(rows) != len(prompt):
        raise ValueError("the prompt has other tokens")
    scores, ranked = [math.nan], [[(0, math.nan)] * k]
    for row, token in zip(rows[1:], prompt[1:], strict=True):
        if row is None:
            raise ValueError("a token of the prompt has no log-probability")
        scores.append(row[str(token)]["logprob"])
        ranked.append(_best([(int(one), told["logprob"]) for one, told in row.items()], k))
    return _floats(scores), _topk(ranked, k)


def _best(pairs: list[Pair], k: int) -> list[Pair]:
    """The likeliest of what was told, which may have the token itself beside them."""
    found = sorted(dict(pairs).items(), key=lambda pair: -pair[1])[:k]
    if len(found) < k:
        raise ValueError(f"{len(found)} tokens are told, and not {k}")
    return found


def _topk(rows: list[list[Pair]], k: int) -> TopK | None:
    if not k:
        return None
    flat = [pair for row in rows for pair in row]
    tokens = pack(f"<{len(flat)}i", *(token for token, _ in flat))
    return TopK(token_ids=tokens, logprobs=_floats([one for _, one in flat]), k=k, length=len(rows))


def _floats(values: Sequence[float]) -> bytes:
    return pack(f"<{len(values)}f", *values)
