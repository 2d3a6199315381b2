"""A vLLM that is trained in its own memory: what serving pays, and how fast the worker steps.

Each side has a processor of its own; on one alone they share it.
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from tests.bench.figures import Figure, Options, plain
from tests.bench.programs import own_weights_steps
from tests.bench.streams import Pace, stream
from tests.support.engine_training.engine import KEY, NAME, PLUGIN, TrainedVllm, trained_vllm
from tests.support.engine_training.lessons import lesson, question
from tests.support.environments.made_once import tiny_model
from tests.support.environments.vllm_env import vllm_python

_ROOT = Path(__file__).parents[4]
_ENDLESS = 5000


async def measure(options: Options) -> list[Figure]:
    """One engine and one stream: before a worker, and beside one that waits and that trains."""
    seconds = 4.0 if options.quick else 20.0
    with tempfile.TemporaryDirectory() as name, trained_vllm(tiny_model(), Path(name)) as engine:
        cores = sorted(os.sched_getaffinity(0))
        _keep_on(cores[0], engine.processes())
        await _paced(engine, 2.0)
        bare = await _paced(engine, seconds)
        engine.ended(engine.train(lesson(epochs=1)))
        _keep_on(cores[-1], engine.workers())
        waiting = await _paced(engine, seconds)
        alone, _ = await _trained(engine, seconds, is_served=False)
        beside, busy = await _trained(engine, seconds, is_served=True)
        failed = busy.failed
    own = _own(len(alone))
    return [
        plain("trained_gap_p50", busy.pace.gap_ms(0.5), "ms")
        .beside("no training", waiting.pace.gap_ms(0.5))
        .at_most_times(1.8),
        plain("trained_gap_p99", busy.pace.gap_ms(0.99), "ms")
        .beside("no training", waiting.pace.gap_ms(0.99))
        .at_most_times(4),
        plain("waiting_worker_gap_p50", waiting.pace.gap_ms(0.5), "ms")
        .beside("no worker", bare.pace.gap_ms(0.5))
        .at_most_times(1.02),
        _rate("engine_steps", alone, own, 0.9),
        _rate("engine_steps_beside_stream", beside, own, 0.5),
        plain("trained_requests_failed", failed, "requests"),
    ]


def _keep_on(core: int, processes: Iterable[int]) -> None:
    """Has all threads of processes run on one processor, and those that they start."""
    for process in processes:
        for task in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), {core})


class _Served:
    """The pace of streams, and how many of them failed."""

    def __init__(self) -> None:
        self.pace, self.failed = Pace(), 0


async def _paced(engine: TrainedVllm, seconds: float) -> _Served:
    found, port = _Served(), urlsplit(engine.url).port
    assert port is not None
    try:
        await stream(port, _request(), connections=1, seconds=seconds, into=found.pace)
    except RuntimeError:
        found.failed += 1
    return found


async def _trained(
    engine: TrainedVllm, seconds: float, *, is_served: bool
) -> tuple[list[float], _Served]:
    """The seconds of steps while a job runs, with one stream beside it or none."""
    # Cancelled, since a job that runs out of time takes its worker along.
    job, served = engine.train(lesson(epochs=_ENDLESS)), _Served()
    if is_served:
        served = await _paced(engine, seconds)
    else:
        await asyncio.sleep(seconds)
    engine.post(f"/train/cancel/{job}")
    engine.ended(job)
    return _steps(engine, job), served


def _steps(engine: TrainedVllm, job: str) -> list[float]:
    """The seconds of the last steps of a job, from the stream of steps."""
    text = _get(engine, f"/train/steps/{job}")
    events: list[dict[str, Any]] = [
        json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line
    ]
    return [float(one["seconds"]) for one in events if "seconds" in one]


def _get(engine: TrainedVllm, path: str) -> str:
    headers = {"authorization": f"Bearer {KEY}"}
    return httpx.get(engine.url + path, headers=headers, timeout=60).text


def _own(steps: int) -> list[float]:
    path = os.pathsep.join((str(PLUGIN), str(_ROOT)))
    command = [str(vllm_python()), own_weights_steps.__file__, str(tiny_model()), str(steps)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    found: list[float] = json.loads(done.stdout)
    return found


def _rate(name: str, ours: list[float], own: list[float], bound: float) -> Figure:
    rate, theirs = (1 / statistics.median(seconds) for seconds in (ours, own))
    return plain(name, rate, "/s").beside("own weights", theirs).at_least_times(bound)


def _request() -> bytes:
    body = {"model": NAME, "prompt": question(200), "max_tokens": 300, "ignore_eos": True}
    content = json.dumps(body | {"stream": True, "temperature": 0}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: engine\r\nContent-Length: {len(content)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + content
