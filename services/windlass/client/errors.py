"""Errors that a call to Windlass may raise."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import httpx


class WindlassError(Exception):
    """The server's refusal: HTTP status, OpenAI's error object, and the request's id."""

    def __init__(
        self, message: str, *, status: int, code: str, param: str, request_id: str
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param
        self.request_id = request_id


class ConnectionFailed(Exception):
    """The server could not be reached, or stopped answering."""


def raise_for(response: httpx.Response) -> None:
    """Raises WindlassError unless the response says success."""
    if response.is_success:
        return
    body: Any = {}
    with contextlib.suppress(ValueError):
        body = response.json()
    raise refusal(body, response)


def refusal(body: Any, response: httpx.Response) -> WindlassError:
    """OpenAI's error object as an exception; what a body lacks, the response says."""
    error = body.get("error") if isinstance(body, dict) else None
    fields: dict[str, Any] = error if isinstance(error, dict) else {}
    return WindlassError(
        str(fields.get("message") or f"The server answered {response.status_code}."),
        status=response.status_code,
        code=str(fields.get("code") or ""),
        param=str(fields.get("param") or ""),
        request_id=response.headers.get("x-request-id", ""),
    )


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turns a failure of the transport, or an address that is none, into ConnectionFailed."""
    try:
        yield
    except (httpx.TransportError, httpx.InvalidURL, httpx.DecodingError) as error:
        raise ConnectionFailed(f"{_address(error)}{_why(error)}") from error


def _address(error: Exception) -> str:
    """The server's address and a colon, where the error knows it: a URL's path says no more."""
    if not isinstance(error, httpx.RequestError):
        return ""
    try:
        url = error.request.url
    except RuntimeError:  # it was raised before there was a request
        return ""
    port = f":{url.port}" if url.port else ""
    return f"{url.scheme}://{url.host}{port}: "


def _why(error: Exception) -> str:
    """What went wrong, without the operating system's number for it."""
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
