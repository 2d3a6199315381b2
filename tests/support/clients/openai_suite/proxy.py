"""A proxy that makes requests of OpenAI's tests possible, and leaves every answer as it is."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from tests.support.clients.openai_suite.objects import (
    AUTHORITY,
    CONTRADICTING,
    NEEDED,
    REFUSED,
    THINGS,
    VALUES,
    Objects,
)
from tests.support.environments.client_certificates import made

# What follows an object or a collection, and names none.
_VERBS = ("activate", "archive", "deactivate", "validate")
# Headers of one connection, of one key, and of a body that is written anew.
_OWN = ("authorization", "connection", "content-length", "host", "transfer-encoding")


@dataclass(frozen=True)
class Named:
    """What a path names: `path` has names of objects in the places of their ids."""

    path: str
    resource: str
    is_item: bool
    verb: str

    @classmethod
    def of(cls, path: str) -> "Named":
        """Reads a path, in which collections and ids take turns."""
        start = "/v1/organization/" if path.startswith("/v1/organization/") else "/v1/"
        words: list[str] = []
        names: list[str] = []
        verb = ""
        for number, word in enumerate(path.removeprefix(start).split("/")):
            if word in _VERBS:
                verb = word
                words.append(word)
            elif number % 2:
                words.append(f"<{'/'.join(names)}>")
            else:
                names.append(word)
                words.append(word)
        last = words[-2 if verb else -1]
        return cls(start + "/".join(words), "/".join(names), last.startswith("<"), verb)

    def ends(self, method: str, body: Mapping[str, Any]) -> bool:
        """Whether a request ends an object, at once or soon."""
        return (
            method == "DELETE"
            or self.verb == "archive"
            or (self.is_item and "expires_in_seconds" in body)
        )


class Proxy:
    """Requests on their way to a server, by a tenant's key."""

    def __init__(self, http: aiohttp.ClientSession, vault: str):
        self._http = http
        self._shared = Objects(self._ask, {"vault": vault})
        self.answers = 0
        # What the server refused, and why.
        self.refusals: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        """The server's answer, byte for byte."""
        named = Named.of(request.path)
        body = await request.json() if request.can_read_body else None
        # Nobody else may miss what ends.
        ends = named.ends(request.method, body or {})
        objects = self._shared.fresh() if ends else self._shared
        await self._presume(request.method, named, objects)
        if body is not None:
            needed = {} if named.is_item else NEEDED.get(named.resource, {})
            body = {**needed, **dict(_placed(named.resource, body.items()))}
        async with self._http.request(
            request.method,
            await objects.filled(named.path),
            params=await objects.filled(_placed(named.resource, request.query.items())),
            json=await objects.filled(body),
            headers=_passed(request.headers, "content-type"),
        ) as got:
            content = await got.read()
        self.answers += 1
        if not got.ok:
            self._note(request.method, named.path, body, content)
        return web.Response(body=content, status=got.status, headers=_passed(got.headers))

    async def _presume(self, method: str, named: Named, objects: Objects) -> None:
        """Makes what a list shows, what is deleted without an id, and what is deactivated."""
        if method != "POST" and named.resource in THINGS:
            await objects.id(named.resource)
        if named.verb == "deactivate":
            path = await objects.filled(named.path.removesuffix("deactivate") + "activate")
            await self._ask(
                "POST", path, await objects.filled({"certificate_ids": ["<certificates>"]})
            )

    async def _ask(self, method: str, path: str, body: Any) -> Any:
        async with self._http.request(method, path, json=body if method != "GET" else None) as got:
            content = await got.read()
            if not got.ok:
                self._note(method, path, body, content)
                raise web.HTTPInternalServerError(
                    text=f"{method} {path} was refused", headers={"x-should-retry": "false"}
                )
            return orjson.loads(content)

    def _note(self, method: str, path: str, sent: Any, content: bytes) -> None:
        self.refusals.append(f"{method} {path} {sent}: {content.decode(errors='replace')}")


def _placed(resource: str, items: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Parameters, with names of objects for placeholders, and without what is refused."""
    values = VALUES.get(resource, {})
    left_out = {*REFUSED.get(resource, ()), *CONTRADICTING.get(resource, ())}
    placed = []
    for name, value in items:
        plain = name.removesuffix("[]")
        if plain in values:
            placed.append((name, values[plain]))
        elif plain == "after":
            placed.append((name, f"<{resource}>"))
        elif plain not in left_out:
            placed.append((name, value))
    return placed


def _passed(headers: Mapping[str, str], *without: str) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in (*_OWN, *without)}


@asynccontextmanager
async def running_proxy(upstream: str, key: str, vault: str) -> AsyncIterator[tuple[str, Proxy]]:
    """Serves on loopback, at the URL that it yields, with a certificate for whoever demands one."""
    headers = {
        "Authorization": f"Bearer {key}",
        # Answers stay compressed; the proxy asks for none that are.
        "Accept-Encoding": "identity",
        **made("client", AUTHORITY).headers(),
    }
    async with aiohttp.ClientSession(upstream, headers=headers, auto_decompress=False) as http:
        proxy = Proxy(http, vault)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", proxy.answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", proxy
        finally:
            await runner.cleanup()
