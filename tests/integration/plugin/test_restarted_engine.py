"""An API server, or its engine, that is killed in the middle of a job: the next one goes on."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.engine_training.engine import KEY, TrainedVllm, next_vllm
from tests.support.engine_training.lessons import lesson
from tests.support.environments.made_once import tiny_model
from tests.support.environments.vllm_env import turn
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.vllm, pytest.mark.timeout(1800)]

SAVED, STEPS = 10, 120
# Moments and norms matter for what comes after, and each step needs the engine.
JOB = lesson(optimizer="apollo", rank=4, learning_rate=0.003, epochs=6, save_steps=SAVED)
JOB |= {"mode": "fenced"}
# Of what waits behind it, and moves nothing.
LAST = lesson(optimizer="sgd", learning_rate=0, epochs=1)
Losses = dict[int, float]


class Run:
    """The folders of one run, through all engines that train it one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._engines = folder, 0
        self.checkpoints, self.private = folder / "checkpoints", folder / "private"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()

    @contextlib.contextmanager
    def engine(self) -> Iterator[TrainedVllm]:
        """The next engine of the run."""
        self._engines += 1
        folder = self._folder / f"engine-{self._engines}"
        folder.mkdir()
        variables = {
            "WINDLASS_VLLM_CHECKPOINTS": str(self.checkpoints),
            "VLLM_SERVER_DEV_MODE": "1",
            "TMPDIR": str(self.temporary),
        }
        with next_vllm(tiny_model(), folder, private=self.private, **variables) as engine:
            yield engine

    @property
    def weights(self) -> bytes:
        """What the newest version's file holds."""
        (path,) = self.checkpoints.glob("run-*/checkpoint/model.safetensors")
        return path.read_bytes()

    def names(self) -> set[str]:
        """Names of the run's folder, without the version."""
        (run,) = self.checkpoints.glob("run-*")
        return {one.name.partition("-")[0] for one in run.iterdir()}


def loaded(engine: TrainedVllm) -> None:
    """Has the engine serve its model's folder again."""
    engine.post("/collective_rpc", {"method": "reload_weights"}).raise_for_status()
    engine.post("/reset_prefix_cache").raise_for_status()


def losses(engine: TrainedVllm, job: str) -> Losses:
    """The loss of each step that this API server heard of, once the job has ended."""
    headers = {"authorization": f"Bearer {KEY}"}
    said = httpx.get(f"{engine.url}/train/steps/{job}", headers=headers, timeout=240).text
    events = [json.loads(one[6:]) for one in said.splitlines() if one.startswith("data: {")]
    return {one["step"]: one["loss"] for one in events if "step" in one}


def in_the_middle(engine: TrainedVllm, job: str) -> dict[str, Any]:
    """Waits until a job has saved steps, and is not at its end."""

    def saved() -> dict[str, Any] | None:
        found: dict[str, Any] = engine.get(f"/train/status/{job}")
        return found if found["saved_step"] >= 2 * SAVED else None

    found = wait_until(saved, seconds=240)
    assert found["status"] == "running"
    return found


def shared_memory(engine: TrainedVllm) -> set[Path]:
    """Files in memory, and of the folder for temporary ones, that the engine's processes map."""
    found = set()
    for one in engine.processes():
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{one}/maps").read_text().splitlines()
            found |= {line.split(maxsplit=5)[-1] for line in lines if "/dev/shm/" in line}
    return {Path(one) for one in found if "(deleted)" not in one}


def went_on(engine: TrainedVllm, job: str, before: int, undisturbed: Losses) -> None:
    """The job ends, and each of its steps has the loss that it has where nobody dies."""
    ended = engine.ended(job)
    assert (ended["status"], ended["steps"], ended["saved_step"]) == ("succeeded", STEPS, STEPS)
    assert ended["last_loss"] == undisturbed[STEPS]
    found = losses(engine, job)
    first = min(found)
    assert (first - 1) % SAVED == 0
    assert before < first <= STEPS
    assert sorted(found) == list(range(first, STEPS + 1))
    assert found == {step: undisturbed[step] for step in found}


def nothing_left(engine: TrainedVllm, run: Run, mapped: set[Path]) -> None:
    """Waits until nothing of a killed engine is there but what the next one removes.

    vLLM's own sockets stay in the folder for temporary files, with the plugin and without it.
    """
    wait_until(lambda: not engine.processes(), seconds=120)
    assert engine.workers() == []
    assert [one for one in mapped if one.exists()] == []
    names = [one.name for one in run.temporary.iterdir()]
    assert [name for name in names if "windlass" in name] == []


def of_kind(engine: TrainedVllm, kind: str) -> int:
    """The process of vLLM's that has a name."""
    (found,) = [one for one, name in engine.processes().items() if name.startswith(f"VLLM::{kind}")]
    return found


def killed_in_the_middle(engine: TrainedVllm, run: Run, kind: str) -> tuple[str, str, int]:
    """A job, one that waits behind it, and the steps that the first had saved at least.

    What is killed is the API server, or what it has started; nothing else has to end the rest.
    """
    loaded(engine)
    job = engine.train(JOB | {"idempotency_key": f"{kind} 1"})
    waits = engine.train(LAST | {"idempotency_key": f"{kind} 2"})
    saved = in_the_middle(engine, job)["saved_step"]
    mapped = shared_memory(engine)
    process = of_kind(engine, kind) if kind else engine.process.pid
    os.kill(process, signal.SIGKILL)
    engine.process.wait(120)
    nothing_left(engine, run, mapped)
    return job, waits, saved


def test_the_next_engine_goes_on_where_one_was_killed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # Names of sockets are short.
    run = Run(tmp_path_factory.mktemp("r"))
    with turn():
        with run.engine() as engine:
            whole = engine.train(JOB)
            assert engine.ended(whole)["status"] == "succeeded"
            undisturbed, weights = losses(engine, whole), run.weights
            assert sorted(undisturbed) == list(range(1, STEPS + 1))
            job, waits, saved = killed_in_the_middle(engine, run, "")
        for kind in ("Worker", "EngineCore", "last"):
            with run.engine() as engine:
                went_on(engine, job, saved, undisturbed)
                assert engine.ended(waits)["steps"] == 20
                assert run.weights == weights
                # That of this engine alone, and no draft of what was killed.
                (_,) = run.private.iterdir()
                assert run.names() == {"checkpoint", "jobs", "optimizer", "progress"}
                if kind != "last":
                    job, waits, saved = killed_in_the_middle(engine, run, kind)
