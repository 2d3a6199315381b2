"""Chat with a model, streamed, without the package `openai`."""

from collections.abc import Callable, Generator, Sequence
from typing import Any

from windlass.client.transport import sse
from windlass.client.transport.session import Session

Message = dict[str, str]


class Chat:
    """Chat completions."""

    def __init__(self, client: Session):
        self._client = client

    def stream(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        waiting: Callable[[str], None] = lambda _reason: None,
        **options: Any,
    ) -> Generator[str, None, None]:
        """The answer's text as it comes; `options` are OpenAI's (those that are None are left out).

        `waiting` is called with what the start of the model's engine waits for. Closing the
        iterator ends the generation.
        """
        asked = {name: value for name, value in options.items() if value is not None}
        body = {"model": model, "messages": list(messages), "stream": True, **asked}
        path = "/v1/chat/completions"
        with self._client.stream(path, method="POST", json=body) as response:
            for chunk in sse.read(response, waiting):
                for choice in chunk.get("choices") or ():
                    if text := (choice.get("delta") or {}).get("content"):
                        yield text
