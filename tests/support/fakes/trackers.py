"""HTTP servers that trackers' tests talk to: W&B's calls as we know them, and ones that misbehave.

`WandbFake` is a fake: W&B cannot run here. It holds a client to what wandb 0.31.0 was seen to send:
the mutation `upsertBucket` with the key as a password, and file streams whose offsets fit.
"""

import asyncio
import base64
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


class Site:
    """An aiohttp server on loopback."""

    def __init__(self) -> None:
        self.app = web.Application()

    async def start(self, port: int = 0) -> str:
        """Starts listening; returns the URL."""
        # Whoever is never answered must not hold the end up.
        self._runner = web.AppRunner(self.app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, reuse_address=True).start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()


@dataclass
class WandbRun:
    """Run as W&B would show it."""

    variables: dict[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] | None = None


class WandbFake(Site):
    """GraphQL and file streams of W&B, as far as a run needs them."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.runs: dict[str, WandbRun] = {}
        self._expected = "Basic " + base64.b64encode(f"api:{key}".encode()).decode()
        self.app.router.add_post("/graphql", self._graphql)
        self.app.router.add_post("/files/{entity}/{project}/{run}/file_stream", self._stream)

    def _check(self, request: web.Request) -> None:
        if request.headers.get("Authorization") != self._expected:
            raise web.HTTPUnauthorized

    async def _graphql(self, request: web.Request) -> web.Response:
        self._check(request)
        document = await request.json()
        assert "upsertBucket(" in document["query"]
        variables = document["variables"]
        json.loads(variables["config"])
        known = self.runs.get(variables["name"])
        run = self.runs.setdefault(variables["name"], WandbRun(variables))
        run.variables, run.end = variables, None
        entity = {"name": variables["entity"] or "default-team"}
        bucket = {
            "id": "b64",
            "name": variables["name"],
            "historyLineCount": len(run.history) if known else None,
            "project": {"name": variables["project"], "entity": entity},
        }
        return web.json_response(
            {"data": {"upsertBucket": {"bucket": bucket, "inserted": known is None}}}
        )

    async def _stream(self, request: web.Request) -> web.Response:
        self._check(request)
        run = self.runs[request.match_info["run"]]
        document = await request.json()
        files = document.get("files", {})
        if lines := files.get("wandb-history.jsonl"):
            # Whoever heard no answer sends the same lines again, to the same place.
            first, content = lines["offset"], [json.loads(line) for line in lines["content"]]
            assert first <= len(run.history)
            run.history[first : first + len(content)] = content
        if summary := files.get("wandb-summary.json"):
            run.summary = json.loads(summary["content"][-1])
        if document.get("complete"):
            run.end = document
        return web.json_response({})


class Silent(Site):
    """Accepts every request and answers none."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.app.router.add_route("*", "/{path:.*}", self._take)

    async def _take(self, request: web.Request) -> web.Response:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


class Answers(Site):
    """Answers every request alike, and records the requests."""

    def __init__(self, status: int, body: str, headers: dict[str, str] | None = None) -> None:
        super().__init__()
        self.status, self.body, self.headers = status, body, headers
        self.requests: list[tuple[str, str]] = []
        self.app.router.add_route("*", "/{path:.*}", self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        self.requests.append((request.path, request.headers.get("Authorization", "")))
        # What a careless server does: it puts back what it was sent.
        body = self.body.replace("{authorization}", request.headers.get("Authorization", ""))
        return web.Response(status=self.status, text=body, headers=self.headers)
