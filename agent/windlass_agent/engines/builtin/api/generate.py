"""POST /inference/v1/generate."""

from contextlib import aclosing
from typing import Annotated, Any, cast

from aiohttp import web
from msgspec import Meta, Struct

from windlass.core.telemetry import request_id
from windlass.inference_api.requests import (
    MAX_CHOICES,
    MAX_TOP,
    Count,
    MinTokens,
    Probability,
    SamplingParams,
    parse,
)
from windlass_agent.engines.boundary import json_response
from windlass_agent.engines.builtin.generation.sequence import Sequence, StepOutput, Token
from windlass_agent.engines.builtin.service import EngineService

MAX_GENERATE_STOPS = 64
Top = Annotated[int, Meta(ge=0, le=MAX_TOP)]
Stop = Annotated[str, Meta(min_length=1, max_length=1024)]


class TokenSampling(Struct, kw_only=True, forbid_unknown_fields=True):
    """Parameters; `logprobs` and `prompt_logprobs` are how many others are told of each token."""

    max_tokens: Count = 16
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] = 1
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    top_p: Probability = 1.0
    top_k: Annotated[int, Meta(ge=-1)] = 0
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    stop: Annotated[list[Stop], Meta(max_length=MAX_GENERATE_STOPS)] = []
    stop_token_ids: Annotated[list[int], Meta(max_length=MAX_GENERATE_STOPS)] = []
    logprobs: Top | None = None
    prompt_logprobs: Top | None = None
    min_tokens: MinTokens = 0
    ignore_eos: bool = False

    def sampling(self, choice: int) -> SamplingParams:
        """The parameters of answer number `choice`; a seed differs for each answer."""
        return SamplingParams(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=max(self.top_k, 0),
            seed=None if self.seed is None else (self.seed + choice) % 2**63,
            stop=tuple(self.stop),
            stop_tokens=frozenset(self.stop_token_ids),
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            logprobs=self.logprobs,
            prompt_logprobs=self.prompt_logprobs is not None and not choice,
            prompt_top=self.prompt_logprobs,
        )


class GenerateRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /inference/v1/generate."""

    model: str
    token_ids: Annotated[list[int], Meta(min_length=1)]
    sampling_params: TokenSampling


async def generate(request: web.Request, service: EngineService) -> web.StreamResponse:
    """Continues token ids by token ids, which end with those that completed a stop."""
    body = parse(GenerateRequest, await request.read())
    asked = body.sampling_params
    with service.use(body.model, "generate") as adapter:
        service.check_tokens(body.token_ids, param="token_ids")
        service.check_tokens(asked.stop_token_ids, param="stop_token_ids")
        service.room(body.token_ids, asked.max_tokens, param="token_ids")
        work = [(body.token_ids, asked.sampling(choice)) for choice in range(asked.n)]
        name = f"generate-tokens-{request_id.get()}"
        pieces = service.start(work, adapter, request_ids=[name] * asked.n)
        found: dict[int, tuple[Sequence, list[StepOutput]]] = {}
        async with aclosing(cast("Any", pieces)) as coming:
            async for sequence, piece in coming:
                found.setdefault(sequence.index, (sequence, []))[1].append(piece)
    version = str(service.versions.version)
    answers = [found[index] for index in sorted(found)]
    told = _prompt(answers[0][1]) if asked.prompt_logprobs is not None else None
    generated = sum(len(sequence.generated) for sequence, _ in answers)
    return json_response(
        {
            "request_id": name,
            "model": body.model,
            "choices": [_choice(*one, version) for one in answers],
            "prompt_logprobs": told,
            "usage": {
                "prompt_tokens": len(body.token_ids),
                "completion_tokens": generated,
                "total_tokens": len(body.token_ids) + generated,
            },
        }
    )


def _choice(sequence: Sequence, pieces: list[StepOutput], version: str) -> dict[str, Any]:
    tokens = [one for piece in pieces if (one := piece.token or piece.ending)]
    logprobs = None
    if sequence.params.logprobs is not None:
        logprobs = {"content": [_content(token) for token in tokens]}
    count = len(sequence.generated)
    return {
        "index": sequence.index,
        "token_ids": sequence.generated,
        "logprobs": logprobs,
        "finish_reason": pieces[-1].finish_reason,
        "weight_versions": [{"version": version, "start": 0, "end": count}] if count else [],
    }


def _content(token: Token) -> dict[str, Any]:
    others = [{"token_id": other, "logprob": logprob} for other, logprob in token.top]
    return {"token_id": token.id, "logprob": token.logprob, "top_logprobs": others}


def _prompt(pieces: list[StepOutput]) -> list[dict[str, Any] | None]:
    """The likeliest tokens in each place of the prompt, and its own; None for the first."""
    found: list[dict[str, Any] | None] = [None]
    for token in pieces[0].prompt[1:]:
        told: dict[str, Any] = {str(token.id): {"logprob": token.logprob, "rank": None}}
        for rank, (other, logprob) in enumerate(token.top, 1):
            told[str(other)] = {"logprob": logprob, "rank": rank}
        found.append(told)
    return found
