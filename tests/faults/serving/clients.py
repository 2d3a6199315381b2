"""Clients of openai-python with requests that are open at once, and what became of each."""

import threading
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai

# Within the context of the small model.
TOKENS = 480


@dataclass
class Request:
    """One request; its client tries nothing again."""

    client: Any
    model: str
    streams: bool
    # Those that its client has been told of.
    tokens: int = 0
    begun: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def run(self) -> None:
        try:
            if self.streams:
                self._stream()
            else:
                self.tokens = self._ask().usage.completion_tokens
        except (openai.APIError, httpx2.TransportError) as error:
            self.error = error

    def _stream(self) -> None:
        options = {"include_usage": True, "continuous_usage_stats": True}
        for chunk in self._ask(stream=True, extra={"stream_options": options}):
            if chunk.usage:
                self.tokens = chunk.usage.completion_tokens
                self.begun.set()

    def _ask(self, *, stream: bool = False, extra: dict[str, Any] | None = None) -> Any:
        return self.client.completions.create(
            model=self.model, prompt="the quick", max_tokens=TOKENS, stream=stream,
            extra_body={"ignore_eos": True, **(extra or {})},
        )  # fmt: skip


@dataclass
class OpenRequests:
    """Requests of which each engine has some."""

    requests: list[Request] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def open(self, request: Request) -> None:
        """Sends a request; returns once a part of a streamed one has come."""
        thread = threading.Thread(target=request.run)
        self.requests.append(request)
        self.threads.append(thread)
        thread.start()
        assert not request.streams or request.begun.wait(60), request.error

    def ended(self) -> list[Request]:
        """All of them, once each has come to its end."""
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive(), "a request has no end"
        return self.requests

    @property
    def under_way(self) -> int:
        return sum(thread.is_alive() for thread in self.threads)
