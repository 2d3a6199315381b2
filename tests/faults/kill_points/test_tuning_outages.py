"""A run goes on where its database is killed or its store is full; what is asked is asked again."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.faults.site import kill, postmaster
from tests.support.environments import postgres
from tests.support.environments.required import lacking
from tests.support.processes.windlass import Windlass, make_single, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

TMPFS_BYTES = 8 * 2**20
# More than a row of the log takes.
TOKENS = 30_000
WAITS = "tuning_waits"
SETTINGS = {
    "agent": {"enabled": False},
    "tuning": {"trainer": "null", "base_models": ["toy"], "snapshot_operations": 5},
}


class Run:
    """A model of a loop that asks again what was not answered, as the SDK does."""

    def __init__(self, windlass: Windlass):
        self._windlass = windlass
        self.refusals: set[str] = set()
        session = self.insist("create_session", {})["session_id"]
        body = {"session_id": session, "model_seq_id": 0, "base_model": "toy"}
        self._id = self.result(self.insist("create_model", body))["model_id"]

    def post(self, path: str, body: Any) -> Any:
        """The answer; None where it is no success."""
        with suppress(httpx.TransportError), self._windlass.http() as http:
            answer = http.post(f"/api/v1/{path}", json=body)
            if answer.status_code == 200:
                return answer.json()
            self.refusals.add(answer.json()["code"])
        return None

    def insist(self, path: str, body: Any) -> Any:
        return wait_until(lambda: self.post(path, body), path, 60)

    def result(self, future: Any) -> Any:
        body = {"request_id": future["request_id"]}

        def found() -> Any:
            answer = self.insist("retrieve_future", body)
            return None if answer.get("type") == "try_again" else answer

        return wait_until(found, "a result", 60)

    def step_body(self, number: int) -> Any:
        return {"model_id": self._id, "seq_id": number, "adam_params": {"learning_rate": 1e-4}}

    def step(self, number: int) -> float:
        found = self.result(self.insist("optim_step", self.step_body(number)))
        return float(found["metrics"]["step:max"])

    def loss_body(self, number: int) -> Any:
        """A loss of so many tokens that neither it nor its result fits in a row."""
        tokens = {"type": "encoded_text", "tokens": list(range(TOKENS))}
        return {
            "model_id": self._id,
            "seq_id": number,
            "forward_backward_input": {
                "loss_fn": "cross_entropy",
                "data": [{"model_input": {"chunks": [tokens]}, "loss_fn_inputs": {}}],
            },
        }


@pytest.fixture(scope="module")
def windlass() -> Iterator[Windlass]:
    """A server with a Postgres of its own and little room for objects."""
    if os.geteuid() != 0:
        lacking("only root can mount a small file system")
    with postgres.reachable_folder() as folder:
        made = make_single(folder / "data", SETTINGS)
        objects = made.data / "objects"
        objects.mkdir(mode=0o700)
        options = f"size={TMPFS_BYTES},mode=0700"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(objects)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            lacking(f"cannot mount a small file system here: {done.stderr.strip()}")
        try:
            with running(made):
                yield made
        finally:
            subprocess.run(["umount", "-l", objects], check=True)
            postgres.remove_database(made.data)


def test_each_step_counts_once_though_the_database_is_killed(windlass: Windlass) -> None:
    run = Run(windlass)
    assert [run.step(number) for number in (1, 2)] == [1, 2]
    futures = [run.insist("optim_step", run.step_body(number)) for number in (3, 4)]
    _kill_database(windlass)
    # Repeats of what was answered, and what is new, while it comes back.
    assert [run.step(number) for number in (3, 4, 5)] == [3, 4, 5]
    assert [run.result(future)["metrics"]["step:max"] for future in futures] == [3, 4]
    assert run.refusals <= {"database_unavailable", "service_unavailable"}, run.refusals


def test_a_full_store_refuses_a_body_and_has_nothing_done_twice(windlass: Windlass) -> None:
    run = Run(windlass)
    assert run.step(1) == 1
    filler = windlass.data / "objects" / "filler"
    _fill(filler)
    assert run.post("forward_backward", run.loss_body(2)) is None
    assert run.refusals == {"storage_full"}
    # What needs no object goes on in the order of its numbers once the body has come.
    waiting = run.insist("optim_step", run.step_body(3))
    filler.unlink()
    computed = run.result(run.insist("forward_backward", run.loss_body(2)))
    assert "loss_fn_outputs" in computed, computed
    assert run.result(waiting)["metrics"]["step:max"] == 2


def test_a_result_waits_for_room(windlass: Windlass) -> None:
    run = Run(windlass)
    # Its body has a place, and its number not yet its turn.
    computed = run.insist("forward_backward", run.loss_body(2))
    filler = windlass.data / "objects" / "filler"
    _fill(filler)
    before = windlass.log().count(WAITS)
    first = run.insist("optim_step", run.step_body(1))
    wait_until(lambda: windlass.log().count(WAITS) > before, "it to wait", 60)
    filler.unlink()
    assert run.result(first)["metrics"]["step:max"] == 1
    assert "loss_fn_outputs" in run.result(computed)
    assert run.step(3) == 2


def _kill_database(windlass: Windlass) -> None:
    before = postmaster(windlass.data)
    kill(before)

    def is_back() -> bool:
        with suppress(OSError, psutil.Error, ValueError, IndexError):
            return postmaster(windlass.data) != before
        return False

    wait_until(is_back, "another Postgres", 60)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (2**20, 2**12):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
