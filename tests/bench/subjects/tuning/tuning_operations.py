"""A step through the unmodified tinker SDK, with a trainer that computes nothing.

Each one is a `forward_backward` and an `optim_step` sent after it, from the call to both results.
Beside it, in turns, a server of the same wire that keeps nothing. A client of the SDK answers one
server, so each has a process of its own for its figures.
"""

import asyncio
import json
import subprocess
import sys
import time
from importlib import import_module
from typing import Any

from tests.bench.figures import Figure, Options, plain
from tests.bench.load import percentile
from tests.bench.plant import NO_AGENT, script, single
from tests.support.processes.windlass import free_port

SETTINGS = {**NO_AGENT, "tuning": {"trainer": "null", "base_models": ["toy"]}}
P50, P99 = 4, 10
_FIRST = 20


async def measure(options: Options) -> list[Figure]:
    """Rounds in turns; medians and tails over all of them."""
    rounds, steps = (2, 100) if options.quick else (5, 400)
    port = free_port()
    ours, theirs = list[float](), list[float]()
    with single(SETTINGS) as plant, script("memory_tinker", str(port)):
        for _ in range(rounds):
            theirs += await _client(f"http://127.0.0.1:{port}", "wl-none", steps)
            ours += await _client(plant.windlass.url, plant.windlass.owner_key, steps)
    return [_figure(ours, theirs, 0.5, P50), _figure(ours, theirs, 0.99, P99)]


def _figure(ours: list[float], theirs: list[float], share: float, bound: float) -> Figure:
    name = f"tuning_operations_p{share * 100:g}"
    figure = plain(name, 1000 * percentile(ours, share), "ms")
    return figure.beside("in memory", 1000 * percentile(theirs, share)).at_most_times(bound)


async def _client(url: str, key: str, steps: int) -> list[float]:
    command = [sys.executable, "-m", __spec__.name, url, f"tml-{key}", str(steps)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _steps(url: str, key: str, steps: int) -> list[float]:
    """Seconds of each step, after some that are not counted."""

    tinker: Any = import_module("tinker")
    types = tinker.types
    service = tinker.ServiceClient(base_url=url, api_key=key)
    training = service.create_lora_training_client(base_model="toy", rank=8).result()
    datum = types.Datum(
        model_input=types.ModelInput.from_ints(list(range(64))),
        loss_fn_inputs={"target_tokens": list(range(64)), "weights": [1.0] * 64},
    )
    took = []
    for _ in range(_FIRST + steps):
        began = time.perf_counter()
        computed = training.forward_backward([datum], "cross_entropy")
        stepped = training.optim_step(types.AdamParams(learning_rate=1e-4))
        computed.result()
        stepped.result()
        took.append(time.perf_counter() - began)
    return took[_FIRST:]


if __name__ == "__main__":
    print(json.dumps(_steps(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
