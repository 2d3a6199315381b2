"""Fakes of NVIDIA's fronts, which come as images for GPUs alone: Triton's OpenAI front, and NIM.

Triton's forms are those of `openai_frontend` in triton-inference-server/server (2026): errors are
FastAPI's `detail`, usage comes in a last chunk where it was asked for, and `/health/ready` is 400
until it is ready. NIM's are those of its API reference for LLMs 2.1: nginx answers 503 before
vLLM's routes are up, and then they are vLLM's.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from windlass_agent.engines.boundary import event, json_response

MODEL = "theirs"
_USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
_WORDS = ("north", " pier")


@dataclass
class NvidiaFront:
    """A front that runs; `kind` is `triton` or `nim`."""

    kind: str
    url: str = ""
    ready: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)

    @property
    def health(self) -> str:
        """The route that says whether it is ready."""
        return "/health/ready" if self.kind == "triton" else "/v1/health/ready"

    @property
    def metrics(self) -> str:
        """The route of its page for Prometheus."""
        return "/metrics" if self.kind == "triton" else "/v1/metrics"

    def app(self) -> web.Application:
        """Its routes."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/v1/models", self._models),
                web.get(self.health, self._health),
                web.get(self.metrics, self._page),
                web.post("/v1/chat/completions", self._chat),
            ]
        )
        return app

    async def _health(self, _: web.Request) -> web.Response:
        if self.ready:
            return web.Response()
        return web.Response(status=400 if self.kind == "triton" else 503)

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(text="nv_inference_request_success 1\n")

    async def _models(self, _: web.Request) -> web.Response:
        if not self.ready:
            return web.Response(status=503, text="<html>503 Service Temporarily Unavailable</html>")
        model = {"id": MODEL, "object": "model", "created": 1764000000}
        more = (
            {"owned_by": "Triton Inference Server"}
            if self.kind == "triton"
            else {"owned_by": "vllm", "root": MODEL, "parent": None, "max_model_len": 4096}
        )
        return json_response({"object": "list", "data": [model | more]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        if (refusal := self._refusal(body)) is not None:
            return json_response(refusal, status=400)
        if not body.get("stream"):
            message = {"role": "assistant", "content": "".join(_WORDS)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return json_response(self._head("chat.completion", [choice]) | {"usage": _USAGE})
        return await self._stream(request, body)

    def _refusal(self, body: dict[str, Any]) -> dict[str, Any] | None:
        if body["model"] != MODEL or body.get("n", 1) > 1:
            said = (
                f"Received n={body.get('n')}, but only single choice (n=1) is currently supported"
            )
            if self.kind == "triton":
                return {"detail": said}
            return {
                "error": {"message": said, "type": "BadRequestError", "param": "n", "code": 400}
            }
        return None

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": word} for word in _WORDS]
        for delta in deltas:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            await response.write(event(self._head("chat.completion.chunk", [choice])))
        if (body.get("stream_options") or {}).get("include_usage"):
            last = self._head("chat.completion.chunk", []) | {"usage": _USAGE}
            await response.write(event(last))
        await response.write(b"data: [DONE]\n\n")
        return response

    def _head(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        said = {"id": "cmpl-1", "choices": choices, "created": 1764000000, "model": MODEL}
        return said | {"system_fingerprint": None, "object": kind}


@asynccontextmanager
async def running_front(kind: str) -> AsyncIterator[NvidiaFront]:
    """Runs one at a free port of this machine; it is not ready."""
    front = NvidiaFront(kind)
    runner = web.AppRunner(front.app(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    front.url = f"http://{host}:{port}"
    try:
        yield front
    finally:
        await runner.cleanup()
