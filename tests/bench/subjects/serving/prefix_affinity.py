"""Conversations of several turns over three engines that keep prompts, by three ways of choice.

The engines compute nothing: they stand for vLLM with its prefix cache, and a token that they do not
know costs each of them the same time. Nothing that they keep is ever forgotten, which favours
choices that scatter a conversation. The gateway sends the turns of one to one engine where engines
keep the prompts of organizations apart (`vllm`), and each to the one with least work where they do
not (`builtin`). The choice at random is the client's, at the engines themselves.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import aiohttp
from tests.bench.figures import Figure, Options, plain
from tests.bench.load import paced, percentile
from tests.bench.plant import NO_AGENT, Plant, script, split_gateway
from tests.bench.stub_agent import joined, running_at
from tests.bench.subjects.serving.chat import PATH
from tests.support.processes.windlass import free_port

ENGINES, TURNS, WORDS = 3, 6, 300
# Conversations that begin each second, and the time between an answer and the next turn.
RATE = 8.0
THINK_SECONDS = (0.1, 0.9)
SETTINGS = {
    **NO_AGENT,
    "inference": {"max_engines": 2 * ENGINES},
    "quotas": {"engines": 2 * ENGINES},
}


@dataclass
class Way:
    """A way of choice: the address and model of each turn, and what came of them."""

    choose: Callable[[], tuple[str, str]]
    first: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0

    @property
    def cached(self) -> float:
        """The part of the prompts' tokens that were kept."""
        return self.cached_tokens / self.prompt_tokens

    def first_ms(self, share: float) -> float:
        """Milliseconds within which this share of the answers began."""
        return percentile(self.first, share) * 1000


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    conversations = int(RATE * (2 if options.quick else 14))
    with ExitStack() as stack:
        ports = [free_port() for _ in range(ENGINES)]
        for port in ports:
            stack.enter_context(script("prefix_engine", str(port)))
        engines = [f"http://127.0.0.1:{port}" for port in ports]
        async with split_gateway(SETTINGS) as plant, joined(plant, running_at(*engines)):
            ways = await asyncio.to_thread(_ways, plant, engines)
            for number, way in enumerate(ways):
                await _converse(way, plant.windlass.owner_key, conversations, seed=number)
    return _figures(*ways)


def _ways(plant: Plant, engines: list[str]) -> tuple[Way, Way, Way]:
    """By conversation, by least work, and at random."""
    for kind in ("vllm", "builtin"):
        plant.serve(plant.import_model(kind), engine=kind, min_replicas=ENGINES)
    dice = random.Random(0)
    gateway = plant.windlass.url
    return (
        Way(lambda: (gateway, "vllm")),
        Way(lambda: (gateway, "builtin")),
        Way(lambda: (dice.choice(engines), "random")),
    )


def _figures(kept: Way, least: Way, scattered: Way) -> list[Figure]:
    p99 = plain("prefix_affinity_ttft_p99", kept.first_ms(0.99), "ms")
    p50 = plain("prefix_affinity_ttft_p50", kept.first_ms(0.5), "ms")
    cached = plain("prefix_affinity_cached", kept.cached * 100, "% of the tokens")
    return [
        cached.beside("at random", scattered.cached * 100).at_least_times(1.5),
        p99.beside("least work", least.first_ms(0.99)).at_most_times(1),
        p50.beside("least work", least.first_ms(0.5)),
        plain("prefix_least_work_cached", least.cached * 100, "% of the tokens"),
    ]


async def _converse(way: Way, key: str, conversations: int, *, seed: int) -> None:
    numbers = itertools.count()
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:

        async def conversation() -> None:
            # The same conversations for each way, and none that an engine knows from another.
            number = next(numbers)
            source = random.Random(number)
            messages: list[dict[str, str]] = []
            for turn in range(TURNS):
                words = f"{seed} {number} {turn} " + "word " * (WORDS - 3)
                messages.append({"role": "user", "content": words})
                await _ask(session, way, messages)
                messages.append({"role": "assistant", "content": "word"})
                await asyncio.sleep(source.uniform(*THINK_SECONDS))

        await paced(conversation, count=conversations, rate=RATE)


async def _ask(session: aiohttp.ClientSession, way: Way, messages: list[dict[str, str]]) -> None:
    """Asks for one turn's answer; raises RuntimeError when it is refused or has no usage."""
    url, model = way.choose()
    body = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began, usage = time.perf_counter(), None
    async with session.post(url + PATH, json=body) as answer:
        async for line in answer.content:
            if line.startswith(b"data: {"):
                if usage is None:
                    way.first.append(time.perf_counter() - began)
                usage = json.loads(line.removeprefix(b"data: ")).get("usage") or {}
    if answer.status != 200 or not usage:
        raise RuntimeError(f"the load failed: {answer.status}")
    way.prompt_tokens += usage["prompt_tokens"]
    way.cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]
