"""A tracker's HTTP API: one origin, bounded in time and size, followed nowhere else."""

import base64
import re
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from windlass_agent.runner.tracking.port import Away, Unwilling

_CALL_SECONDS = 10.0
_ANSWER_BYTES = 4 << 20
_LATER = frozenset({408, 429})
# What of an answer may be repeated to people: a server may put back what it was sent.
_CODE = re.compile(r"[A-Z][A-Z_]{0,63}")


def open_session() -> aiohttp.ClientSession:
    """A session that keeps no cookies, asks no proxy, and waits for no call longer than 10 s."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=_CALL_SECONDS), cookie_jar=aiohttp.DummyCookieJar()
    )


def basic(name: str, password: str) -> str:
    """The value of an Authorization header with a name and a password."""
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


class TrackerClient:
    """Calls below one URL, each with the same credential."""

    def __init__(self, session: aiohttp.ClientSession, url: str, authorization: str) -> None:
        """`authorization` is the header's value, empty for none."""
        self._session = session
        self._url = url
        self._headers = {"Authorization": authorization} if authorization else {}

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        document: Any = None,
        content: bytes | None = None,
    ) -> Any:
        """The JSON of an answer, None for none; `path` is quoted. Raises Away and Unwilling."""
        headers = dict(self._headers)
        if document is not None:
            content = msgspec.json.encode(document)
            headers["Content-Type"] = "application/json"
        url = URL(self._url + path, encoded=True).with_query(query)
        try:
            async with self._session.request(
                method, url, data=content, headers=headers, allow_redirects=False
            ) as response:
                body = await _bounded(response)
                status = response.status
        except TimeoutError as error:
            raise Away(f"no answer within {_CALL_SECONDS:.0f} seconds") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Away(f"it cannot be reached ({type(error).__name__})") from error
        except ValueError as error:
            raise Unwilling("the request cannot be written as HTTP") from error
        return _judged(status, body)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _ANSWER_BYTES:
            raise Unwilling("its answer is too large")
    return bytes(body)


def _judged(status: int, body: bytes) -> Any:
    try:
        answer = msgspec.json.decode(body) if body.strip() else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answer = None
        if status == 200:
            raise Unwilling("its response is not JSON: another server listens there") from None
    if 200 <= status < 300:
        return answer
    code = str(answer.get("error_code", "")) if isinstance(answer, dict) else ""
    code = code if _CODE.fullmatch(code) else ""
    said = f"it answered {status} {code}".rstrip()
    if status >= 500 or status in _LATER:
        raise Away(said)
    if 300 <= status < 400:
        raise Unwilling(f"{said}, and redirects are not followed", status=status)
    raise Unwilling(said, status=status, code=code)
