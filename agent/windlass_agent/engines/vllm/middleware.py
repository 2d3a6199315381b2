"""Routes and headers of weight versions around vLLM's own application."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from windlass.inference_api.errors import ApiError, bad_value
from windlass.inference_api.requests import UpdateWeightsRequest, parse
from windlass.inference_api.routes import ABORT, WEIGHT_VERSION
from windlass_agent.engines.versioned.gate import check_version, demanded_version
from windlass_agent.engines.vllm.in_place import VllmVersions

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_UPDATE, _VERSION = "/update_weights", "/weight_version"
# What steers the engine rather than asking it: an update must not wait for these.
_STEERING = frozenset(
    {
        *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/tokenize", ABORT),
        *("/sleep", "/wake_up", "/collective_rpc", "/reset_prefix_cache"),
    }
)
_MAX_BODY_BYTES = 2**16
_HEADER = WEIGHT_VERSION.encode()
_log = logging.getLogger(__name__)


class VersionedApplication:
    """Holds each request to one version, which it may demand and its answer names."""

    def __init__(self, app: Application, scratch: Path):
        """`scratch` has room for a copy of the weights."""
        self._app = app
        self._scratch = scratch
        self._made: VllmVersions | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers the agent's two routes, and lets all else through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        versions, path = self._versions(scope), scope["path"]
        try:
            if path == _VERSION:
                await _answer(send, 200, {"version": versions.version}, versions.version)
            elif path == _UPDATE and scope["method"] == "POST":
                await _update(versions, receive, send)
            elif scope["method"] != "POST" or path in _STEERING:
                await self._app(scope, receive, send)
            else:
                await self._hold(versions, scope, receive, send)
        except ApiError as error:
            await _answer(send, error.status, error.body(), versions.version)

    async def _hold(
        self, versions: VllmVersions, scope: Scope, receive: Receive, send: Send
    ) -> None:
        told = next((value for name, value in scope["headers"] if name == _HEADER), None)
        demanded = demanded_version(None if told is None else told.decode("latin-1"))
        async with versions.gate.request():
            version = versions.version
            check_version(demanded, version)

            async def naming(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    headers = [*message.get("headers", ()), (_HEADER, str(version).encode())]
                    message = {**message, "headers": headers}
                await send(message)

            await self._app(scope, receive, naming)

    def _versions(self, scope: Scope) -> VllmVersions:
        if self._made is None:
            state = scope["app"].state
            model = Path(state.args.model)
            self._made = VllmVersions(state.engine_client, model, self._scratch)
        return self._made


async def _update(versions: VllmVersions, receive: Receive, send: Send) -> None:
    body = parse(UpdateWeightsRequest, await _read(receive))
    root = Path(body.path)
    if not root.is_absolute():
        raise bad_value("path must be absolute", "path")
    try:
        # Shielded: a caller that leaves must not leave it open which version answers.
        await asyncio.shield(versions.update(body.version, root, body.wait_seconds))
    except ApiError:
        raise
    except Exception as error:
        _log.exception("weights_not_replaced")
        raise ApiError("Internal error.", status=500, code="internal") from error
    await _answer(send, 200, {"version": body.version}, versions.version)


async def _read(receive: Receive) -> bytes:
    content = bytearray()
    while True:
        message = await receive()
        content += message.get("body", b"")
        if len(content) > _MAX_BODY_BYTES:
            raise ApiError("The body is too large.", status=413, code="request_too_large")
        if not message.get("more_body"):
            return bytes(content)


async def _answer(send: Send, status: int, body: Any, version: int) -> None:
    headers = [(b"content-type", b"application/json"), (_HEADER, str(version).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})
