"""Two runs of two base models by turns on one device, beside one after the other.

Trainers, ledger and parking are real; the device is the processors.
"""

import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from tests.bench.figures import Figure, Options, plain
from tests.bench.plant import NO_AGENT, Plant, single
from tests.support.factories import tuning_engines as make

MODELS = ("one", "other")
DEMAND = {"device_bytes": 2**30, "host_bytes": 2**30}
GOAL = 1.1
TOKENS = list(range(48))
BATCH = {
    "data": [
        {
            "model_input": {"chunks": [{"type": "encoded_text", "tokens": TOKENS}]},
            "loss_fn_inputs": {
                "target_tokens": {"data": TOKENS, "dtype": "int64", "shape": [len(TOKENS)]},
                "weights": {
                    "data": [1.0] * len(TOKENS), "dtype": "float32", "shape": [len(TOKENS)],
                },
            },
        }
    ]
    * 16,
    "loss_fn": "cross_entropy",
}  # fmt: skip


async def measure(options: Options) -> list[Figure]:
    """Seconds of both runs, from the first step to the last: medians of interleaved pairs."""
    steps, rounds = (20, 1) if options.quick else (300, 5)
    with tempfile.TemporaryDirectory() as folder, single(_settings(Path(folder))) as plant:
        clients = [TuningLoop(plant, name) for name in MODELS]
        for client in clients:
            client.learn(3)
        apart, together = list[float](), list[float]()
        for _ in range(rounds):
            apart.append(_apart(clients, steps))
            together.append(_together(clients, steps))
    figure = plain("turns", statistics.median(together), "s")
    return [figure.beside("one after the other", statistics.median(apart)).at_most_times(GOAL)]


def _settings(folder: Path) -> dict[str, Any]:
    for seed, name in enumerate(MODELS):
        make.network(seed).save_pretrained(folder / name)
    seats = {
        "devices": {"processors": {"device_bytes": 2**30}},
        "demands": dict.fromkeys(MODELS, DEMAND),
        "turns": "fifo",
        "turn_seconds": 2.0,
    }
    folders = {name: str(folder / name) for name in MODELS}
    return {**NO_AGENT, "tuning": {"trainer": "lora", "model_folders": folders, "seats": seats}}


def _apart(clients: "list[TuningLoop]", steps: int) -> float:
    began = time.perf_counter()
    for client in clients:
        client.learn(steps)
    return time.perf_counter() - began


def _together(clients: "list[TuningLoop]", steps: int) -> float:
    began = time.perf_counter()
    with ThreadPoolExecutor(len(clients)) as pool:
        for done in [pool.submit(client.learn, steps) for client in clients]:
            done.result()
    return time.perf_counter() - began


class TuningLoop:
    """A loop without the SDK, whose every step waits for the one before it."""

    def __init__(self, plant: Plant, model: str, options: dict[str, str] | None = None):
        key = {"Authorization": f"Bearer {plant.windlass.owner_key}"}
        self._http = httpx.Client(base_url=plant.windlass.url, headers=key, timeout=120)
        asked = {"sdk_version": "bench", "user_metadata": options}
        session = self._post("create_session", asked)["session_id"]
        body = {"session_id": session, "model_seq_id": 0, "base_model": model}
        self._run = self._result(self._post("create_model", body))["model_id"]
        self._number = 0

    def learn(self, steps: int) -> None:
        """So many losses, each with its step."""
        for _ in range(steps):
            body = {"model_id": self._run, "seq_id": self._number + 1}
            computed = self._post("forward_backward", body | {"forward_backward_input": BATCH})
            body = {"model_id": self._run, "seq_id": self._number + 2, "adam_params": {}}
            stepped = self._post("optim_step", body)
            self._number += 2
            self._result(computed)
            self._result(stepped)

    def end(self) -> None:
        """Deletes the run, which ends a trainer of its own."""
        self._post("unload_model", {"model_id": self._run})

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._http.post(f"/api/v1/{path}", json=body)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def _result(self, future: dict[str, Any]) -> dict[str, Any]:
        asked = {"request_id": future["request_id"]}
        while (found := self._post("retrieve_future", asked)).get("type") == "try_again":
            pass
        if "error" in found:
            raise RuntimeError(found["error"])
        return found
