"""POST /v1/completions."""

from dataclasses import replace
from typing import Any

from aiohttp import web

from windlass.core.telemetry import request_id
from windlass.inference_api.errors import bad_value
from windlass.inference_api.requests import (
    MAX_CHOICES,
    CompletionRequest,
    Input,
    check_completion,
    parse,
)
from windlass_agent.engines.builtin.api.answer import Answer
from windlass_agent.engines.builtin.generation.sequence import Sequence, StepOutput, Token
from windlass_agent.engines.builtin.service import EngineService
from windlass_agent.engines.builtin.text.tokenizer import ModelTokenizer


async def completions(request: web.Request, service: EngineService) -> web.StreamResponse:
    """Continues one or more prompts."""
    body = parse(CompletionRequest, await request.read())
    check_completion(body)
    with service.use(body.model, "generate") as adapter:
        prompts = await tokenize(service, body.prompt, param="prompt")
        if len(prompts) * body.choices() > MAX_CHOICES:
            raise bad_value(
                f"must ask for at most {MAX_CHOICES} answers, `n` of each prompt", "prompt"
            )
        work, ids = [], []
        for number, prompt in enumerate(prompts):
            room = service.room(prompt, body.max_tokens, param="prompt")
            for choice in range(body.choices()):
                params = body.sampling(max_tokens=room, logprobs=body.logprobs, choice=choice)
                scored = bool(body.echo) and body.logprobs is not None
                work.append((prompt, replace(params, prompt_logprobs=scored)))
                ids.append(f"cmpl-{request_id.get()}-{number}")
        pieces = service.start(work, adapter, request_ids=ids)
        shape = CompletionShape(service.model.tokenizer, echo=bool(body.echo))
        count = sum(len(prompt) for prompt in prompts)
        answer = Answer(shape, body.model, prompt_tokens=count, pieces=pieces)
        if body.stream:
            return await answer.stream(request, body.stream_options)
        return await answer.whole()


async def tokenize(service: EngineService, given: Input, *, param: str) -> list[list[int]]:
    """The prompts as token ids; raises ApiError for none, an empty one, or an unknown id."""
    prompts = []
    for one in _split(given, param):
        ids = await service.model.tokenizer.encode(one) if isinstance(one, str) else one
        if not ids:
            raise bad_value(f"{param} must not be empty", param)
        service.check_tokens(ids, param=param)
        prompts.append(ids)
    return prompts


def _split(given: Input, param: str) -> list[str] | list[list[int]]:
    if isinstance(given, str):
        return [given]
    texts = [one for one in given if isinstance(one, str)]
    ids = [one for one in given if isinstance(one, int)]
    lists = [one for one in given if isinstance(one, list)]
    if not given or len(given) != max(len(texts), len(ids), len(lists)):
        raise bad_value(f"{param} must be texts or token ids, of one kind, and not empty", param)
    return texts or lists or [ids]


class CompletionShape:
    """Choices in the words of completions."""

    prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, tokenizer: ModelTokenizer, *, echo: bool):
        self._tokenizer = tokenizer
        self._echo = echo
        self._offsets: dict[int, int] = {}

    def opening(self, sequence: Sequence) -> list[dict[str, Any]]:
        """Returns no chunk: the first one holds text."""
        return []

    def delta(self, sequence: Sequence, piece: StepOutput) -> dict[str, Any]:
        """The choice of a chunk."""
        first = sequence.index not in self._offsets
        self._offsets.setdefault(sequence.index, 0)
        text = (self._prompt(sequence) if first else "") + piece.text
        tokens = [*piece.prompt, *([piece.token] if piece.token else [])]
        return {
            "index": sequence.index,
            "text": text,
            "logprobs": self._logprobs(sequence, tokens),
            "finish_reason": piece.finish_reason,
        }

    def whole(self, sequence: Sequence, pieces: list[StepOutput]) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""
        parts = [self.delta(sequence, piece) for piece in pieces]
        logprobs = None
        if sequence.params.logprobs is not None:
            logprobs = {
                key: [value for part in parts for value in part["logprobs"][key]]
                for key in parts[0]["logprobs"]
            }
        text = "".join(part["text"] for part in parts)
        return {**parts[-1], "text": text, "logprobs": logprobs}

    def _prompt(self, sequence: Sequence) -> str:
        return self._tokenizer.decode(sequence.prompt) if self._echo else ""

    def _logprobs(self, sequence: Sequence, tokens: list[Token]) -> dict[str, Any] | None:
        if sequence.params.logprobs is None:
            return None
        names = [self._tokenizer.token(token.id) for token in tokens]
        offsets = []
        for name in names:
            offsets.append(self._offsets[sequence.index])
            self._offsets[sequence.index] += len(name)
        return {
            "tokens": names,
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [self._top(token) for token in tokens],
            "text_offset": offsets,
        }

    def _top(self, token: Token) -> dict[str, float | None] | None:
        if token.logprob is None:
            return None
        best = {self._tokenizer.token(other): logprob for other, logprob in token.top}
        return {**best, self._tokenizer.token(token.id): token.logprob}
