"""The front of a serving stack, such as a router, an ingress or one server of OpenAI's routes."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.engines.boundary import trace

CONNECT_SECONDS = 10.0
PROBE_SECONDS = 10.0
# A stack may compute for long before it answers.
SILENCE_SECONDS = 900.0
# More of a list of models is not read.
LIST_BYTES = 4 * 2**20
# Of a body that is sent; what the system's buffers do not take waits.
_PIECE_BYTES = 64 * 2**10
_NAMED = 5
_WITHOUT_LIST = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


class SentBody:
    """The body of a request, which is kept until it is sent."""

    def __init__(self, body: bytes, sent: Callable[[], None]):
        """`sent` is called once nothing of it is kept any more."""
        self.size = len(body)
        self._body = body
        self._sent = sent

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at in range(0, self.size, _PIECE_BYTES):
            yield self._body[at : at + _PIECE_BYTES]
        self._body = b""
        self._sent()


class StackProblem(Exception):
    """A stack that cannot answer for a model now; the message is a sentence for operators."""


class StackClient:
    """A client of a stack; call inside an event loop. Raises ValueError for a bad certificate."""

    def __init__(self, spec: pb.ServingStack):
        self.spec = spec
        self.open = 0
        self._retired = False
        self._base = spec.url.rstrip("/").removesuffix("/v1")
        connector = aiohttp.TCPConnector(limit=0, ssl=_trust(spec))
        self._session = aiohttp.ClientSession(
            connector=connector,
            # What is small on the wire must not be large here.
            headers={"Accept-Encoding": "identity"}
            | ({"Authorization": f"Bearer {spec.key}"} if spec.key else {}),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    @asynccontextmanager
    async def _using(self) -> AsyncIterator[None]:
        """Keeps the connections until the end of the block, also once they are retired."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
            if self._retired and not self.open:
                await self._session.close()

    @asynccontextmanager
    async def post(
        self, path: str, body: SentBody, request_id: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Sends a request, and yields the answer; raises aiohttp.ClientError or TimeoutError."""
        headers = {
            "Content-Type": "application/json",
            # Many servers take no body of which they do not know the length.
            "Content-Length": str(body.size),
            "x-request-id": request_id,
            **trace.get(),
        }
        # Whoever redirects would get the key.
        sending = self._session.post(
            self._base + path, data=body, headers=headers, allow_redirects=False
        )
        async with self._using(), sending as response:
            yield response

    async def probe(self) -> int:
        """Returns the model's context in tokens, 0 if the stack does not say; raises StackProblem.

        A stack without a list of models is taken at its word.
        """
        host = urlsplit(self.spec.url).netloc
        try:
            async with self._using():
                status, answer = await self._list()
        # An address that cannot be one is a ValueError.
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            said = str(error) or type(error).__name__
            raise StackProblem(f"The serving stack at {host} does not answer: {said}.") from error
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise StackProblem(f"The serving stack at {host} refuses its key ({status}).")
        if status in _WITHOUT_LIST:
            return 0
        if status != HTTPStatus.OK or answer is None:
            raise StackProblem(f"The serving stack at {host} lists no models (status {status}).")
        for model in answer:
            if model.get("id") == self.spec.model:
                length = model.get("max_model_len")
                return length if isinstance(length, int) and 0 < length < 2**31 else 0
        known = ", ".join(_shown(model.get("id")) for model in answer[:_NAMED]) or "none"
        raise StackProblem(
            f"The serving stack at {host} has no model {self.spec.model!r}; it has {known}"
            f"{', …' if len(answer) > _NAMED else ''}."
        )

    async def _list(self) -> tuple[int, list[dict[str, Any]] | None]:
        timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
        async with self._session.get(
            f"{self._base}/v1/models", timeout=timeout, allow_redirects=False
        ) as response:
            content = await response.content.read(LIST_BYTES)
            while len(content) < LIST_BYTES and (more := await response.content.read(LIST_BYTES)):
                content += more
            return response.status, _models(content)

    async def retire(self) -> None:
        """Closes the connections once no request is open."""
        self._retired = True
        if not self.open:
            await self._session.close()

    async def close(self) -> None:
        """Closes the connections, and so ends every request."""
        self._retired = True
        await self._session.close()


def _shown(name: object) -> str:
    return "".join(one for one in str(name)[:64] if one.isprintable())


def _models(content: bytes) -> list[dict[str, Any]] | None:
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    data = document.get("data") if isinstance(document, dict) else None
    return [one for one in data if isinstance(one, dict)] if isinstance(data, list) else None


def _trust(spec: pb.ServingStack) -> ssl.SSLContext | bool:
    """Returns what certifies the stack; raises ValueError for what is no certificate."""
    if not spec.ca:
        return True
    try:
        return ssl.create_default_context(cadata=spec.ca)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError("The stack's CA is no certificate in PEM.") from error
