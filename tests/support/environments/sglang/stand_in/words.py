"""A model that says words, one after another, with SGLang's places, queue, cache and adapters."""

import asyncio
import hashlib
import itertools
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_WORDS = ("river", "stone", "harbour", "north", "lamp", "seven", "boat", "quiet", "field", "amber")
_TOKEN_SECONDS = 0.004


class Refused(Exception):
    """A request, or an adapter, that is not taken; with SGLang's words and status."""

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.message, self.status = message, status


@dataclass
class Work:
    """A request that is open; `prompt` has its tokens, the counts are those so far."""

    rid: str
    prompt: list[str]
    tokens: int
    salt: str
    adapter: str | None
    priority: int
    cached: int = 0
    said: list[str] = field(default_factory=list)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)


class WordModel:
    """All that SGLang's scheduler is here."""

    def __init__(self, *, context: int, running: int, queued: int, max_rank: int, model: Path):
        self.context = context
        self.places = running
        self.queued = queued
        self.max_rank = max_rank
        self.adapters: dict[str, tuple[Path, str]] = {}
        self.work: dict[str, Work] = {}
        self.aborted: list[str] = []
        self.counts = dict.fromkeys(("prompt", "generation", "cached"), 0)
        self.running = 0
        self._seed = _digest(model / "model.safetensors")
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()
        # Prompts that were read, by salt and adapter.
        self._read: dict[tuple[str, str], list[list[str]]] = {}

    def load(self, name: str, path: Path) -> None:
        """Loads an adapter; raises Refused as SGLang's LoRA manager would."""
        if name in self.adapters:
            raise Refused(f"Failed to load LoRA adapter {name} because it is already loaded")
        config = json.loads((path / "adapter_config.json").read_bytes())
        if config.get("use_dora"):
            raise Refused(
                f"Failed to load {name} because LoRA serving currently doesn't support DoRA "
                "adapters"
            )
        if config["r"] > self.max_rank:
            raise Refused(
                f"LoRA adapter {name} with rank {config['r']} is incompatible with the current "
                "LoRA memory pool configuration."
            )
        scale = config["lora_alpha"] / config["r"]
        self.adapters[name] = (path, f"{scale:.6f}{_digest(path / 'adapter_model.safetensors')}")

    async def unload(self, name: str) -> None:
        """Forgets an adapter once no request uses it; raises Refused for an unknown one."""
        if name not in self.adapters:
            raise Refused(f"LoRA with name {name} does not exist.")
        del self.adapters[name]
        while any(one.adapter == name for one in self.work.values()):
            await asyncio.sleep(_TOKEN_SECONDS)

    def abort(self, rid: str) -> None:
        """Ends the work on a request, if there is such a one."""
        if rid in self.work:
            self.aborted.append(rid)
            self.work[rid].aborted.set()

    async def generate(self, work: Work) -> AsyncGenerator[str]:
        """Yields words; raises Refused for what does not fit."""
        total = len(work.prompt) + work.tokens
        if total > self.context:
            raise Refused(
                "Requested token count exceeds the model's maximum context length of "
                f"{self.context} tokens. You requested a total of {total} tokens."
            )
        if work.adapter is not None and work.adapter not in self.adapters:
            raise Refused(f"Got LoRA adapter that has never been loaded: {work.adapter}")
        _, weights = self.adapters[work.adapter] if work.adapter else (None, "")
        self.work[work.rid] = work
        try:
            await self._place(work)
            try:
                self._read_prompt(work, weights)
                while len(work.said) < work.tokens and not work.aborted.is_set():
                    await asyncio.sleep(_TOKEN_SECONDS)
                    work.said.append(self._next(work, weights))
                    yield work.said[-1]
            finally:
                self._leave()
        finally:
            del self.work[work.rid]
            for name, number in (
                ("prompt", len(work.prompt)),
                ("generation", len(work.said)),
                ("cached", work.cached),
            ):
                self.counts[name] += number

    def _next(self, work: Work, weights: str) -> str:
        said = f"{self._seed}{weights}{work.prompt}{len(work.said)}"
        return _WORDS[hashlib.sha256(said.encode()).digest()[0] % len(_WORDS)] + " "

    def _read_prompt(self, work: Work, weights: str) -> None:
        known = self._read.setdefault((work.salt, weights), [])
        work.cached = max((_common(work.prompt, one) for one in known), default=0)
        known.append(work.prompt)

    async def _place(self, work: Work) -> None:
        """Waits for a place, lower priorities first; raises Refused where too many wait."""
        if self.running >= self.places:
            if len(self._waiting) >= self.queued:
                raise Refused("The request queue is full.", 503)
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            entry = (work.priority, next(self._arrivals), turn)
            self._waiting.append(entry)
            gone = asyncio.create_task(work.aborted.wait())
            try:
                await asyncio.wait({turn, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                if entry in self._waiting:
                    self._waiting.remove(entry)
        self.running += 1

    def _leave(self) -> None:
        self.running -= 1
        if self._waiting:
            first = min(self._waiting, key=lambda one: one[:2])
            self._waiting.remove(first)
            first[2].set_result(None)

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._waiting)


def tokens_of(text: Any) -> list[str]:
    """The words of a prompt, of a list of token ids, or of a conversation."""
    if isinstance(text, str):
        return text.split()
    return [str(one) for one in text]


def _common(one: list[str], other: list[str]) -> int:
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    # The last token of a prompt is always computed.
    return min(len(list(same)), len(one) - 1)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes() if file.exists() else b"").hexdigest()
