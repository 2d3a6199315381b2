"""Load of engines of every kind, read of their own pages for Prometheus."""

import math
from dataclasses import dataclass, replace
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from windlass.api.keeper.v1 import keeper_pb2 as pb

# A page of vLLM's has some hundred KiB.
PAGE_BYTES = 4 * 2**20
# What a double holds exactly.
_MOST = 2**53


@dataclass(frozen=True, kw_only=True)
class EngineLoad:
    """Requests in an engine now, its room for keys and values, and tokens since its start."""

    running: int = 0
    waiting: int = 0
    cache_used: float | None = None
    """From 0 to 1, by requests that run; None of an engine that does not say."""
    prompt_tokens: int = 0
    """Of whole prompts, those included that were known from before."""
    cached_tokens: int = 0
    generated_tokens: int = 0
    finished_requests: int | None = None
    """Since its start, however they ended; None of an engine that does not say."""
    wait_seconds: float | None = None
    """That a request waits in it; None where that is not known, as of a single page."""

    def since(self, before: Self | None, seconds: float) -> Self:
        """Returns the load with the wait, as fast as requests have ended in so many seconds."""
        if before is None or before.finished_requests is None or self.finished_requests is None:
            return self
        # Little's law. Of an engine that was started anew, it counts from 0.
        finished = self.finished_requests - before.finished_requests
        return replace(self, wait_seconds=self.waiting * seconds / max(1, finished))


@dataclass(frozen=True, kw_only=True)
class LoadNames:
    """Names of samples of one kind of engine, of which several are added up; parts are averaged."""

    running: str
    waiting: str
    prompt_tokens: tuple[str, ...]
    generated_tokens: str
    cached_tokens: str = ""
    cache_used: str = ""
    finished_requests: str = ""
    split: str = ""
    """Label of requests that are also in a sample of all of them, which has it empty."""

    @property
    def _all(self) -> frozenset[str]:
        own: tuple[str, ...] = (self.running, self.waiting, self.generated_tokens)
        own += (self.cached_tokens, self.cache_used, self.finished_requests, *self.prompt_tokens)
        return frozenset({*own} - {""})

    def read(self, page: str) -> EngineLoad:
        """Returns the load that a page says; raises ValueError for what is no such page."""
        wanted = self._all
        lines = [line for line in page.splitlines() if line.startswith(tuple(wanted))]
        sums, caches = dict.fromkeys(wanted, 0.0), list[float]()
        for family in text_string_to_metric_families("\n".join([*lines, ""])):
            for sample in family.samples:
                if sample.name in (self.running, self.waiting) and sample.labels.get(self.split):
                    continue
                if sample.name in sums:
                    sums[sample.name] += sample.value
                if sample.name == self.cache_used:
                    caches.append(sample.value)
        return EngineLoad(
            running=_count(sums[self.running]),
            waiting=_count(sums[self.waiting]),
            # Of several engines in one process, each has a cache of its own.
            cache_used=_part(sum(caches) / len(caches)) if caches else None,
            prompt_tokens=sum(_count(sums[name]) for name in self.prompt_tokens),
            cached_tokens=_count(sums.get(self.cached_tokens, 0.0)),
            generated_tokens=_count(sums[self.generated_tokens]),
            finished_requests=_count(sums[finished])
            if (finished := self.finished_requests)
            else None,
        )


def load_of(said: pb.EngineLoad) -> EngineLoad:
    """The load of a keeper's message, within its bounds."""
    has = said.HasField
    return EngineLoad(
        running=_count(said.running),
        waiting=_count(said.waiting),
        cache_used=_part(said.cache_used) if has("cache_used") else None,
        prompt_tokens=_count(said.prompt_tokens),
        cached_tokens=_count(said.cached_tokens),
        generated_tokens=_count(said.generated_tokens),
        finished_requests=_count(said.finished_requests) if has("finished_requests") else None,
        wait_seconds=max(0.0, _finite(said.wait_seconds)) if has("wait_seconds") else None,
    )


def load_page(load: EngineLoad | None) -> str:
    """The page for a picker, in vLLM's names whatever the engine; empty where nothing is known."""
    if load is None:
        return ""
    told = {
        "vllm:num_requests_running": load.running,
        "vllm:num_requests_waiting": load.waiting,
        "vllm:kv_cache_usage_perc": load.cache_used or 0.0,
    }
    lines = [f"# TYPE {name} gauge\n{name} {value}\n" for name, value in told.items()]
    return "".join(lines)


def _part(value: float) -> float | None:
    return min(1.0, max(0.0, value)) if math.isfinite(value) else None


def _count(value: float) -> int:
    return int(min(_MOST, max(0.0, _finite(value))))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0
