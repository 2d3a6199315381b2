"""Server-sent events, as far as OpenAI's API uses them."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from windlass.client.errors import ConnectionFailed, refusal, unexpected

_DONE = "[DONE]"


def _ignore(_comment: str) -> None:
    pass


def read(
    response: httpx.Response, comment: Callable[[str], None] = _ignore
) -> Iterator[dict[str, Any]]:
    """The documents of a stream until its end; `comment` is called with each comment.

    Raises WindlassError for an error that arrives mid-stream, ConnectionFailed
    for a line that is not JSON, or an answer that is no stream of events.
    """
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        raise unexpected(response, "a stream of events")
    for line in response.iter_lines():
        if line.startswith(":"):
            comment(line.removeprefix(":").strip())
        if not line.startswith("data:"):
            continue
        text = line.removeprefix("data:").strip()
        if text == _DONE:
            return
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ConnectionFailed("The event stream contains a line that is not JSON.") from error
        if "error" in document and document.get("object") is None:
            raise refusal(document, response)
        yield document
