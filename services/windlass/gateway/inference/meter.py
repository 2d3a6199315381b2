"""Counts one inference request and writes it down once."""

import time

from windlass.core.auth import Principal
from windlass.gateway.exchange import Exchange
from windlass.gateway.inference.sse import Usage
from windlass.gateway.spool import Spool, UsageLine

CLIENT_LEFT = 499
_IDLE, _OPEN, _WRITTEN = range(3)


class Meter:
    """What a request used so far."""

    __slots__ = (
        "_exchange",
        "_first",
        "_model",
        "_principal",
        "_spool",
        "_state",
        "kind",
        "usage",
    )  # fmt: skip

    def __init__(self, spool: Spool, exchange: Exchange, model: str, kind: int):
        self._spool = spool
        self._exchange = exchange
        self._state = _IDLE
        self._principal: Principal = exchange.caller
        self._model = model
        self.kind = kind
        self._first = 0.0
        self.usage = Usage()

    def open(self) -> None:
        """Notes that an engine is about to have the request."""
        self._state = _OPEN

    def first_byte(self) -> None:
        """Notes when the first part of the answer came."""
        if not self._first:
            self._first = time.perf_counter()

    def write(self, status: int) -> None:
        """Writes the record of a request that reached an engine, once.

        Call it before the last byte of the answer is sent.
        """
        if self._state != _OPEN:
            return
        self._state = _WRITTEN
        started, now = self._exchange.started, time.perf_counter()
        principal = self._principal
        self._spool.append(
            UsageLine(
                self._exchange.serial,
                int(time.time() * 1000),
                principal.organization_id,
                principal.project_id,
                principal.user_id,
                principal.key_id,
                self._model,
                self.kind,
                self.usage.prompt_tokens,
                self.usage.completion_tokens,
                int((now - started) * 1000),
                int((self._first - started) * 1000) if self._first else 0,
                status,
            )
        )

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.usage.prompt_tokens + self.usage.completion_tokens
