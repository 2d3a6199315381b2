"""Answers: whole, or as server-sent events."""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Protocol, cast
from uuid import uuid4

from aiohttp import web

from windlass.inference_api.requests import StreamOptions
from windlass_agent.engines.boundary import END, event, event_stream, json_response
from windlass_agent.engines.builtin.generation.sequence import Sequence, StepOutput

Pieces = AsyncIterator[tuple[Sequence, StepOutput]]


class Shape(Protocol):
    """Response format of one route."""

    prefix: str
    whole_object: str
    chunk_object: str

    def opening(self, sequence: Sequence) -> list[dict[str, Any]]:
        """Choices of chunks that come before an answer's first piece."""

    def delta(self, sequence: Sequence, piece: StepOutput) -> dict[str, Any]:
        """The choice of a chunk."""

    def whole(self, sequence: Sequence, pieces: list[StepOutput]) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""


class Answer:
    """One answer under way: its head, its counts and its pieces."""

    def __init__(self, shape: Shape, model: str, *, prompt_tokens: int, pieces: Pieces):
        self._shape = shape
        self._head = {
            "id": f"{shape.prefix}-{uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }
        self._prompt_tokens = prompt_tokens
        self._pieces = pieces
        self._generated: dict[int, int] = {}

    async def whole(self) -> web.Response:
        """Waits for everything."""
        answers: dict[int, tuple[Sequence, list[StepOutput]]] = {}
        async with _closing(self._pieces) as pieces:
            async for sequence, piece in pieces:
                self._count(sequence)
                answers.setdefault(sequence.index, (sequence, []))[1].append(piece)
        choices = [self._shape.whole(*answers[index]) for index in sorted(answers)]
        body = {**self._head, "object": self._shape.whole_object, "choices": choices}
        return json_response({**body, "usage": self._usage()})

    async def stream(
        self, request: web.Request, options: StreamOptions | None
    ) -> web.StreamResponse:
        """Writes chunks as they come; ends when the client leaves."""
        return await event_stream(request, self._events(options or StreamOptions()))

    async def _events(self, options: StreamOptions) -> AsyncIterator[bytes]:
        async with _closing(self._pieces) as pieces:
            async for sequence, piece in pieces:
                yield self._chunks(sequence, piece, options)
        if options.include_usage:
            yield event(self._chunk([], {"usage": self._usage()}))
        yield END

    def _chunks(self, sequence: Sequence, piece: StepOutput, options: StreamOptions) -> bytes:
        first = sequence.index not in self._generated
        choices = self._shape.opening(sequence) if first else []
        self._count(sequence)
        choices.append(self._shape.delta(sequence, piece))
        more: dict[str, Any] = {}
        if options.continuous_usage_stats:
            more = {"usage": self._usage()}
        elif options.include_usage:
            more = {"usage": None}
        return b"".join(event(self._chunk([choice], more)) for choice in choices)

    def _chunk(self, choices: list[dict[str, Any]], more: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "object": self._shape.chunk_object, "choices": choices, **more}

    def _count(self, sequence: Sequence) -> None:
        # Pieces may lag behind the scheduler, so each is counted as it is written.
        generated = min(self._generated.get(sequence.index, 0) + 1, len(sequence.generated))
        self._generated[sequence.index] = generated

    def _usage(self) -> dict[str, int]:
        completion = sum(self._generated.values())
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self._prompt_tokens + completion,
        }


def _closing(pieces: Pieces) -> "aclosing[Any]":
    return aclosing(cast("Any", pieces))
