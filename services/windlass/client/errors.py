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


class UnexpectedAnswer(ConnectionFailed):
    """An answer of something else at the server's address, such as a proxy's page."""


def raise_for(response: httpx.Response) -> None:
    """Raises WindlassError unless the response says success."""
    if response.is_success:
        return
    body: Any = {}
    with contextlib.suppress(ValueError):
        body = response.json()
    raise refusal(body, response)


def decoded(response: httpx.Response) -> Any:
    """The object of an answer, None for an empty one; raises UnexpectedAnswer for anything else."""
    if not response.content:
        return None
    with contextlib.suppress(ValueError):
        if isinstance(body := response.json(), dict):
            return body
    raise unexpected(response, "a JSON object")


def unexpected(response: httpx.Response, expected: str) -> UnexpectedAnswer:
    """Returns the error for an answer that is not what the server sends."""
    kind = response.headers.get("content-type", "").partition(";")[0] or "no content type"
    return UnexpectedAnswer(
        f"{_place(response.url)} answered {response.status_code} with {kind}, not with {expected}"
    )


def refusal(body: Any, response: httpx.Response) -> WindlassError:
    """OpenAI's error object as an exception; what a body lacks, the response says."""
    error = body.get("error") if isinstance(body, dict) else None
    # The routes of the tinker SDK have the message there, and the rest beside it.
    fields: dict[str, Any] = {**body, "message": error} if isinstance(error, str) else {}
    fields = error if isinstance(error, dict) else fields
    return WindlassError(
        str(fields.get("message") or _status(response)),
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


def _status(response: httpx.Response) -> str:
    """A status that nothing explains, and where a redirection leads."""
    to = f" to {response.headers['location']}" if response.has_redirect_location else ""
    status = f"{response.status_code} {response.reason_phrase}".rstrip()
    return f"{_place(response.url)} answered {status}{to}."


def _place(url: httpx.URL) -> str:
    """A URL without a query, and without a password."""
    return f"{_origin(url)}{url.path}"


def _origin(url: httpx.URL) -> str:
    port = f":{url.port}" if url.port else ""
    return f"{url.scheme}://{url.host}{port}"


def _address(error: Exception) -> str:
    """The server's address and a colon, where the error knows it: a URL's path says no more."""
    if not isinstance(error, httpx.RequestError):
        return ""
    try:
        return f"{_origin(error.request.url)}: "
    except RuntimeError:  # it was raised before there was a request
        return ""


def _why(error: Exception) -> str:
    """Returns what went wrong, without the operating system's number for it."""
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
