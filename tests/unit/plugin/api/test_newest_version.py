"""An engine that starts answers nothing before it has the newest version of its run."""

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from windlass_vllm.api.newest_version import NewestVersionFirst


async def test_nothing_but_routes_of_training_answers_meanwhile() -> None:
    async def answer(request: Request) -> Response:
        return PlainTextResponse("a")

    behind = [True]
    paths = ("/health", "/v1/completions", "/train/status", "/checkpoint")
    application = Starlette(routes=[Route(path, answer) for path in paths])
    application.add_middleware(NewestVersionFirst, is_behind=lambda: behind[0])
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        held = [(await client.get(path)).status_code for path in paths]
        assert held == [503, 503, 200, 200]
        refused = await client.get("/v1/completions")
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["type"] == "service_unavailable"
        behind[0] = False
        assert [(await client.get(path)).text for path in paths] == ["a"] * 4
