"""Routes on the engine's port: a caller with the key trains, looks and cancels."""

import asyncio
import functools
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from windlass_vllm.api.jobs import EngineJob
from windlass_vllm.api.requests import MOST_BODY_BYTES, read_request
from windlass_vllm.api.training import EngineTraining, counts
from windlass_vllm.refusal import Refused

_STATUS = {
    "body_too_large": 413,
    "idempotency_conflict": 409,
    "invalid_request": 400,
    "job_unknown": 404,
    "no_checkpoints": 409,
    "no_key": 403,
    "outputs_gone": 410,
    "queue_full": 429,
    "unauthenticated": 401,
}
_UNAVAILABLE = 503
Handler = Callable[[Request], Awaitable[Response]]


class TrainRoutes:
    """Routes of training; each asks for the key before it reads anything."""

    def __init__(self, key: Callable[[], str], training: Callable[[], EngineTraining]) -> None:
        self._key, self._training = key, training

    def routes(self) -> list[Route]:
        """Returns the routes to put on the engine's application."""
        found: list[tuple[str, str, Handler]] = [
            ("POST", "/train", self._train),
            ("POST", "/checkpoint", self._checkpoint),
            ("GET", "/train/status", self._status),
            ("GET", "/train/status/{job}", self._job),
            ("GET", "/train/steps/{job}", self._steps),
            ("GET", "/train/outputs/{job}", self._outputs),
            ("POST", "/train/cancel/{job}", self._cancel),
        ]
        return [
            Route(path, self._guarded(handler), methods=[method], include_in_schema=False)
            for method, path, handler in found
        ]

    def _guarded(self, handler: Handler) -> Handler:
        @functools.wraps(handler)
        async def guarded(request: Request) -> Response:
            try:
                self._authenticate(request)
                return await handler(request)
            except Refused as error:
                words = {"reason": error.reason, "message": str(error)}
                return JSONResponse({"error": words}, _STATUS.get(error.reason, _UNAVAILABLE))

        return guarded

    def _authenticate(self, request: Request) -> None:
        if not (key := self._key()):
            raise Refused("no_key", "WINDLASS_VLLM_KEY is not set, so that nobody may train")
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(given.encode(), key.encode()):
            raise Refused("unauthenticated", "Authorization: the key of training is asked for")

    async def _train(self, request: Request) -> Response:
        training = self._training()
        body = await _bounded(request)
        # Millions of ids are looked at beside the loop on which answers stream.
        checked = await asyncio.to_thread(read_request, body, training.bounds)
        job = await training.submit(checked)
        return JSONResponse(job.described(), 202)

    async def _checkpoint(self, request: Request) -> Response:  # A handler's.
        return JSONResponse((await self._training().checkpoint()).described(), 202)

    async def _status(self, request: Request) -> Response:
        training = self._training()
        jobs = [one.described() for one in training.queue.jobs.values()]
        return JSONResponse(counts(training) | {"jobs": jobs})

    async def _job(self, request: Request) -> Response:
        return JSONResponse(self._named(request).described())

    async def _steps(self, request: Request) -> Response:
        return StreamingResponse(_events(self._named(request)), media_type="text/event-stream")

    async def _outputs(self, request: Request) -> Response:
        content = self._named(request).outputs
        if content is None:
            raise Refused("outputs_gone", "what the job computed is kept no longer, or is not yet")
        return Response(content, media_type="application/octet-stream")

    async def _cancel(self, request: Request) -> Response:
        job = await self._training().queue.cancel(request.path_params["job"])
        return JSONResponse(job.described(), 202)

    def _named(self, request: Request) -> EngineJob:
        return self._training().queue.get(request.path_params["job"])


async def _bounded(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY_BYTES:
            raise Refused("body_too_large", f"the body exceeds {MOST_BODY_BYTES} bytes")
    return bytes(body)


async def _events(job: EngineJob) -> AsyncIterator[bytes]:
    async for step in job.follow():
        yield _event(msgspec.structs.asdict(step))
    yield _event(job.described())


def _event(words: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(words) + b"\n\n"
