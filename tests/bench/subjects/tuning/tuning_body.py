"""A batch of 5 MB in protobuf, from its first byte to the future that answers it.

The gateway is a process of its own, so that its memory shows alone. Beside it, in turns, a server
that reads the same bytes and hashes them.
"""

import statistics
import struct
import time
from collections.abc import Callable
from typing import Any

import httpx
from tests.bench import machine
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.plant import NO_AGENT, Plant, script, split_gateway
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

from windlass.api.tinker.v1 import tinker_pb2 as wire

SEQUENCES, TOKENS = 40, 32_000
TIMES, QUICK_TIMES = 25, 5
EXTRA_MIB, SHARE = 40, 0.5
BINARY = {"content-type": "application/x-protobuf"}
TAKEN = {"accept": BINARY["content-type"]}
SETTINGS = {**NO_AGENT, "tuning": {"trainer": "null", "base_models": ["toy"]}}


async def measure(options: Options) -> list[Figure]:
    """Megabytes a second of either, and what the gateway's memory grew by."""
    times = QUICK_TIMES if options.quick else TIMES
    port = free_port()
    async with split_gateway(SETTINGS) as plant:
        with script("body_hasher", str(port)), plant.windlass.http() as http:
            run = _begun(http)
            _sent(http, run, 1)
            machine.forget_peak(plant.pid("gateway"))
            rested = machine.memory_bytes(plant.pid("gateway"), "VmRSS")
            ours, theirs = list[float](), list[float]()
            for number in range(2, times + 2):
                ours.append(_sent(http, run, number))
                theirs.append(_hashed(port, run, number))
            grown = _grown(plant, rested)
    size = len(_body(run, 1)) / 1e6
    speed, floor = (size / statistics.median(found) for found in (ours, theirs))
    figure = plain("tuning_body", speed, "MB/s").beside("read and hashed", floor)
    return [figure.at_least_times(SHARE), at_most("tuning_body_memory", grown, "MiB", EXTRA_MIB)]


def _grown(plant: Plant, rested: int) -> float:
    return (machine.memory_bytes(plant.pid("gateway"), "VmHWM") - rested) / 2**20


def _body(run: str, number: int) -> bytes:
    chunk = wire.Chunk(encoded_text=wire.EncodedText(tokens=_TOKENS))
    return wire.ForwardBackwardRequest(
        model_id=run,
        seq_id=number,
        data=[wire.Datum(model_input=[chunk]) for _ in range(SEQUENCES)],
        loss_fn="cross_entropy",
        forward_only=True,
    ).SerializeToString()


_TOKENS = struct.pack(f"<{TOKENS}i", *range(TOKENS))


def _begun(http: httpx.Client) -> str:
    session = _post(http, "create_session", {})["session_id"]
    new = {"session_id": session, "model_seq_id": 0, "base_model": "toy"}
    return str(_result(http, _post(http, "create_model", new))["model_id"])


def _sent(http: httpx.Client, run: str, number: int) -> float:
    """Seconds until the future is there; returns once its result is."""
    body = _body(run, number)

    def send() -> httpx.Response:
        return http.post("/api/v1/forward_backward", content=body, headers=BINARY)

    seconds, answer = _timed(send)
    _result(http, answer.json())
    return seconds


def _hashed(port: int, run: str, number: int) -> float:
    body = _body(run, number)
    with httpx.Client() as client:
        client.get(f"http://127.0.0.1:{port}/")
        seconds, _ = _timed(lambda: client.post(f"http://127.0.0.1:{port}/", content=body))
    return seconds


def _timed(call: Callable[[], httpx.Response]) -> tuple[float, httpx.Response]:
    began = time.perf_counter()
    answer = call()
    seconds = time.perf_counter() - began
    return seconds, answer.raise_for_status()


def _post(http: httpx.Client, path: str, body: Any) -> Any:
    return http.post(f"/api/v1/{path}", json=body).raise_for_status().json()


def _result(http: httpx.Client, future: Any) -> Any:
    body = {"request_id": future["request_id"]}

    def found() -> Any:
        answer = http.post("/api/v1/retrieve_future", json=body, headers=TAKEN).raise_for_status()
        if answer.headers["content-type"] == BINARY["content-type"]:
            return answer.content
        return None if answer.json().get("type") == "try_again" else answer.json()

    return wait_until(found, "a result", 60)
