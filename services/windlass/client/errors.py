"""Errors that a call to Windlass may raise."""

import contextlib
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
        raise ConnectionFailed(str(error) or type(error).__name__) from error
