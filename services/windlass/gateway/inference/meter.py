"""Metering of one inference request: its usage is counted and recorded once."""

import time
from collections.abc import Sequence

import msgspec

from windlass.api.usage.v1 import usage_pb2
from windlass.core.clock import now_ms
from windlass.core.rpc.auth import Principal
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.head import BYTES_PER_TOKEN, Head
from windlass.gateway.usage.measured_models import MODELS
from windlass.gateway.usage.spool import UsageLine, UsageSpool
from windlass.gateway.usage.token_usage import TokenUsage
from windlass.inference_api.images.bounds import likely_tokens, most_tokens
from windlass.inference_api.images.dimensions import Dimensions
from windlass.inference_api.requests import MAX_CHOICES
from windlass.metrics import gateway as metrics

OK, CLIENT_LEFT = 200, 499
# Of system prompts and marks that a model's own chat template writes.
TEMPLATE_TOKENS = 1024
# Of a chat that sets no bound: as long as the context of most models.
CONTEXT_TOKENS = 128 * 1024
COMPLETION_TOKENS = 16
# Of one answer, for what an engine has generated and not counted.
TOKENS_PER_SECOND = 25
# Of any number in a record: it is stored, and many are added up.
MOST_COUNTED = 2**31 - 1
CHAT = usage_pb2.USAGE_KIND_CHAT
_UNSPECIFIED = usage_pb2.USAGE_KIND_UNSPECIFIED
_GENERATING = (CHAT, usage_pb2.USAGE_KIND_COMPLETION, _UNSPECIFIED)
_IDLE, _OPEN, _WRITTEN = range(3)


class UsageBounds(msgspec.Struct, frozen=True):
    """Upper bounds of a request's usage, from what the gateway itself observed.

    A token stands for at least a byte of text, and every byte of a prompt is in the request,
    as every byte of an answer is in the answer. Beside it there is what a chat template adds
    (`TEMPLATE_TOKENS`), and the bound that a chat sets itself (`max_tokens` of `n` answers).
    Where a request may ask for tokens without text, there is what it asks for alone. Images stand
    for tokens by their pixels.
    """

    kind: int
    prompt: int
    # None: the answer's bytes alone.
    completion: int | None
    by_bytes: bool = True
    choices: int = 1
    # Tokens of a completion that nobody has counted.
    likely: int = 0
    # Of the images of the prompt, whose bytes say nothing: at most, and probably.
    images: int = 0
    likely_images: int = 0

    @classmethod
    def of(cls, kind: int, head: Head, body_bytes: int) -> "UsageBounds":
        """Bounds of a request as it was received, without its images."""
        prompt = body_bytes + head.query_bytes + TEMPLATE_TOKENS
        if kind not in _GENERATING:
            return cls(kind, prompt, 0)
        # None of the engines answers more, whatever is asked.
        choices = min(head.choices, MAX_CHOICES)
        each = CONTEXT_TOKENS if kind == CHAT else COMPLETION_TOKENS
        likely = head.most_tokens or each * choices
        if not head.hides_tokens:
            most = head.most_tokens if kind == CHAT else None
            return cls(kind, prompt, most, choices=choices, likely=likely)
        # `n` of each prompt, and `max_tokens` has a default.
        most = likely if kind == CHAT else (head.most_tokens or COMPLETION_TOKENS) * MAX_CHOICES
        return cls(kind, prompt, most, by_bytes=False, choices=choices, likely=likely)

    def with_images(self, images: Sequence[Dimensions]) -> "UsageBounds":
        """Returns them as of a prompt that has images as well."""
        return msgspec.structs.replace(
            self, images=most_tokens(images), likely_images=likely_tokens(images)
        )

    def within(self, usage: TokenUsage, answer_bytes: int) -> TokenUsage:
        """Limits the usage that an engine reports to these bounds."""
        most = answer_bytes if self.completion is None else self.completion
        if self.by_bytes:
            most = min(most, answer_bytes)
        prompt = min(max(0, usage.prompt_tokens), self.prompt + self.images)
        completion = min(max(0, usage.completion_tokens), most)
        return TokenUsage(
            prompt,
            completion,
            min(max(0, usage.cached_tokens), prompt),
            min(max(0, usage.reasoning_tokens), completion),
            usage.estimated,
        )

    def estimate(self, seconds: float, answer_bytes: int) -> TokenUsage:
        """Estimates the usage of a request that an engine has worked on for so long.

        By the bytes of the prompt and the pixels of its images, and for the answer by time and its
        bytes, where there are any.
        """
        prompt = max(1, (self.prompt - TEMPLATE_TOKENS) // BYTES_PER_TOKEN + self.likely_images)
        written = int(max(0.0, seconds) * TOKENS_PER_SECOND) * self.choices
        if answer_bytes:
            written = max(1, min(written, answer_bytes // BYTES_PER_TOKEN))
        return TokenUsage(prompt, min(written, self.likely), estimated=True)


class UsageMeter:
    """Usage of a request so far."""

    __slots__ = (
        "_answer_bytes", "_asked", "_bounds", "_engines", "_exchange", "_first", "_model",
        "_principal", "_reported", "_spool", "_state", "client_left", "streams", "usage",
    )  # fmt: skip

    def __init__(self, spool: UsageSpool, exchange: HttpExchange, model: str, bounds: UsageBounds):
        self._spool = spool
        self._exchange = exchange
        self._state = _IDLE
        self._principal: Principal = exchange.caller
        self._model = model
        self._bounds = bounds
        self._answer_bytes = 0
        # That have the request: two where one is slow to begin.
        self._engines = 0
        self._asked = self._first = 0.0
        self._reported = TokenUsage()
        # What is counted, from `write` on.
        self.usage = TokenUsage()
        # Whatever comes after it.
        self.client_left = False
        # Whether the answer comes in parts, which alone have times of their own.
        self.streams = False

    @property
    def kind(self) -> int:
        """Kind of the request in usage records."""
        return self._bounds.kind

    def see(self, images: Sequence[Dimensions]) -> None:
        """Notes the images of the prompt, once they are known and before an engine has them."""
        self._bounds = self._bounds.with_images(images)

    def answered(self, size: int) -> None:
        """Notes bytes of the answer."""
        self._answer_bytes += size

    def report(self, usage: TokenUsage) -> None:
        """Stores the usage that the engine reports."""
        self._reported = usage

    def open(self) -> None:
        """Notes that the request is about to be sent to an engine."""
        self._state = _OPEN
        self._engines = 0

    @property
    def is_asked(self) -> bool:
        """True once an engine has the request."""
        return self._engines > 0

    def asked(self) -> None:
        """Notes that an engine gets the request."""
        self._asked = time.perf_counter()
        self._engines += 1

    def refused(self) -> None:
        """Notes that an engine that got the request leaves it to others."""
        self._engines -= 1

    def first_byte(self) -> None:
        """Notes when the first part of the answer came."""
        if not self._first:
            self._first = time.perf_counter()

    def write(self, status: int, *, worked: bool = False) -> None:
        """Writes the record of a request that reached an engine, once.

        Call it before the last byte of the answer is sent. `worked` tells of an error that an
        engine has worked on the request nevertheless.
        """
        if self._state != _OPEN:
            return
        self._state = _WRITTEN
        # By what the engine said: what it refused costs nothing, though nobody waits for it.
        worked = worked or status in (OK, CLIENT_LEFT)
        if self.client_left:
            status = CLIENT_LEFT
        started, now = self._exchange.started, time.perf_counter()
        counted = self._counted(now, worked=worked)
        usage = self.usage = counted.at_most(MOST_COUNTED)
        self._measure(status, usage, now)
        principal = self._principal
        self._spool.record(
            UsageLine(
                self._exchange.serial,
                now_ms(),
                principal.organization_id,
                principal.project_id,
                principal.user_id,
                principal.key_id,
                self._model,
                self.kind,
                usage.prompt_tokens,
                usage.completion_tokens,
                min(int((now - started) * 1000), MOST_COUNTED),
                min(int((self._first - started) * 1000), MOST_COUNTED) if self._first else 0,
                status,
                usage.cached_tokens,
                usage.reasoning_tokens,
                usage.estimated,
            )
        )

    def _counted(self, now: float, *, worked: bool) -> TokenUsage:
        """The usage that was reported, within its bounds, or an estimate where none was."""
        said = self._bounds.within(self._reported, self._answer_bytes)
        if said.prompt_tokens or not (worked and self.is_asked) or self.kind == _UNSPECIFIED:
            return said
        found = self._bounds.estimate(now - self._asked, self._answer_bytes)
        if said.completion_tokens:
            found.completion_tokens = said.completion_tokens
        return found

    def _measure(self, status: int, usage: TokenUsage, now: float) -> None:
        metrics.PROMPT_TOKENS.inc(usage.prompt_tokens)
        metrics.COMPLETION_TOKENS.inc(usage.completion_tokens)
        started = self._exchange.started
        first = self._first - started if self.streams and self._first else None
        MODELS.of(self._model, self._principal.project_id).count(status, usage, first)
        if first is not None:
            metrics.FIRST_TOKEN_SECONDS.observe(first)
            if usage.completion_tokens > 1:
                between = (now - self._first) / (usage.completion_tokens - 1)
                metrics.INTER_TOKEN_SECONDS.observe(between)

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        usage = self.usage
        return usage.prompt_tokens + usage.completion_tokens
