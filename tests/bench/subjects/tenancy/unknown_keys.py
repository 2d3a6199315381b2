"""A tenant's chat while others send 5,000 requests a second with keys that nobody has.

The gateway runs alone on one core; flood, load, services, Postgres and engine share the others.
Quiet and flooded rounds alternate; a percentile is of all rounds of a kind. Half of the keys
fail by their form. In a last round all do, and there are no more look-ups than when it is quiet.
"""

import asyncio
import os
import re
from collections.abc import Awaitable
from dataclasses import dataclass, field

import httpx
from tests.bench import machine
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.load import percentile, steady
from tests.bench.plant import Plant, flood, script
from tests.bench.subjects.serving.anonymous_flood import RATE, pinned_gateway
from tests.bench.subjects.serving.chat import PATH
from tests.support.processes.windlass import free_port

from windlass.core.app import runtime_dir

FLOOD = 5000
SETTLE_SECONDS = 3.0
_REFUSED = re.compile(r'windlass_http_requests_total\{[^}]*status="(?:401|429)"[^}]*\} (\S+)')
_LOOKED_UP = re.compile(r'windlass_rpc_handled_total\{[^}]*method="Authenticate"[^}]*\} (\S+)')


@dataclass
class Rounds:
    """Seconds of a tenant's answers, and what became of the others' requests."""

    quiet: list[float] = field(default_factory=list)
    flooded: list[float] = field(default_factory=list)
    # A second.
    refused: float = 0.0
    looked_up: float = 0.0
    looked_up_quiet: float = 0.0
    looked_up_misspelt: float = 0.0


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    core = {min(os.sched_getaffinity(0))}
    others = os.sched_getaffinity(0) - core or core
    os.sched_setaffinity(0, others)
    try:
        port = free_port()
        with script("null_engine", str(port)) as pid:
            machine.pin(pid, others)
            async with pinned_gateway(f"http://127.0.0.1:{port}", core, others) as (plant, body):
                rounds = await _rounds(plant, body, options)
    finally:
        os.sched_setaffinity(0, core | others)
    slower = percentile(rounds.flooded, 0.99) / percentile(rounds.quiet, 0.99)
    share = rounds.looked_up / rounds.refused
    misspelt = rounds.looked_up_misspelt - rounds.looked_up_quiet
    return [
        at_most("unknown_keys_p99", slower, "x quiet", 1.2),
        plain("unknown_keys_refused", rounds.refused, "1/s"),
        plain("unknown_keys_looked_up", share, "of those refused"),
        # One in a round is the tenant's own key, which is looked up again when its time is over.
        at_most("unknown_keys_misspelt_looked_up", misspelt, "1/s more", 0.1),
        plain("unknown_keys_p99_quiet", percentile(rounds.quiet, 0.99) * 1000, "ms"),
        plain("unknown_keys_p99_flooded", percentile(rounds.flooded, 0.99) * 1000, "ms"),
    ]


async def _rounds(plant: Plant, body: bytes, options: Options) -> Rounds:
    rounds, seconds = Rounds(), 4.0 if options.quick else 15.0
    key, port = plant.windlass.owner_key, plant.windlass.port

    async def chats(length: float) -> list[float]:
        return await steady(port, PATH, body, key=key, rate=RATE, seconds=length)

    async def counting(chat: Awaitable[list[float]]) -> tuple[list[float], float, float]:
        before = _counted(plant)
        answers = await chat
        refused, looked_up = _counted(plant)
        return answers, (refused - before[0]) / seconds, (looked_up - before[1]) / seconds

    await chats(2)
    number = 1 if options.quick else 3
    for _ in range(number):
        answers, _, rounds.looked_up_quiet = await counting(chats(seconds))
        rounds.quiet += answers
        with flood("key_flood", str(port), str(FLOOD)):
            await asyncio.sleep(SETTLE_SECONDS)
            answers, refused, looked_up = await counting(chats(seconds))
        rounds.flooded += answers
        rounds.refused += refused / number
        rounds.looked_up += looked_up / number
    with flood("key_flood", str(port), str(FLOOD), "misspelt"):
        await asyncio.sleep(SETTLE_SECONDS)
        _, refused, rounds.looked_up_misspelt = await counting(chats(seconds))
    assert refused, "the flood came"
    return rounds


def _counted(plant: Plant) -> tuple[float, float]:
    """Requests that were refused for their keys, and look-ups of keys."""
    listeners = runtime_dir(plant.windlass.data).glob("*.operations")
    pages = [httpx.get(f"{path.read_text().strip()}/metrics").text for path in listeners]

    def sum_of(pattern: re.Pattern[str]) -> float:
        return sum(float(found) for page in pages for found in pattern.findall(page))

    return sum_of(_REFUSED), sum_of(_LOOKED_UP)
