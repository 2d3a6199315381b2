"""Jobs that go on from the last step that was saved, when the worker is killed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_training.engine import TrainedVllm, trained_vllm
from tests.support.engine_training.lessons import lesson, streaming
from tests.support.engine_training.stopping import stop_at
from tests.support.environments.made_once import tiny_model

pytestmark = [pytest.mark.torch, pytest.mark.vllm, pytest.mark.timeout(1800)]

# Moments and norms matter for what comes after.
JOB = lesson(optimizer="apollo", rank=4, learning_rate=0.003, epochs=4, save_steps=20)
STEPS = 80


class Run:
    """The folder of checkpoints, and the engine that trains now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoints"
        self.engine: TrainedVllm

    @property
    def weights(self) -> bytes:
        """What the newest version's file holds."""
        (path,) = self.folder.glob("run-*/checkpoint/model.safetensors")
        return path.read_bytes()

    @property
    def variables(self) -> dict[str, str]:
        """The environment of each engine of the run."""
        return {"WINDLASS_VLLM_CHECKPOINTS": str(self.folder), "VLLM_SERVER_DEV_MODE": "1"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("engine")
    found = Run(folder)
    with trained_vllm(tiny_model(), folder, **found.variables) as found.engine:
        yield found


@pytest.fixture(scope="module")
def uninterrupted(run: Run) -> bytes:
    """The weights after a job that nobody interrupts."""
    return trained(run, JOB)


def trained(run: Run, body: dict[str, Any]) -> bytes:
    """The weights after a job on the weights that the engine has loaded."""
    engine = run.engine
    engine.post("/collective_rpc", {"method": "reload_weights"}).raise_for_status()
    engine.post("/reset_prefix_cache").raise_for_status()
    job = engine.ended(engine.train(body))
    assert (job["status"], job["steps"], job["saved_step"]) == ("succeeded", STEPS, STEPS), job
    return run.weights


@pytest.mark.parametrize(
    ("point", "number"),
    [
        ("weight-applied", 700),
        ("version-written", 2),
        pytest.param("step-begun", 35, marks=pytest.mark.long),
        pytest.param("state-written", 2, marks=pytest.mark.long),
        pytest.param("progress-written", 2, marks=pytest.mark.long),
        pytest.param("version-settled", 2, marks=pytest.mark.long),
    ],
)
def test_a_worker_that_is_killed_costs_no_step(
    run: Run, uninterrupted: bytes, point: str, number: int
) -> None:
    """Saved steps stay, others are done again: to the bit what nobody interrupted."""
    stop_at(run.engine.private, point, number)
    with streaming(run.engine, clients=1):
        assert trained(run, JOB) == uninterrupted
    assert not (run.engine.private / "stop-at").exists()


def test_without_a_saved_step_a_lost_worker_ends_its_job(run: Run) -> None:
    stop_at(run.engine.private, "progress-written", 1)
    engine = run.engine
    job = engine.ended(engine.train(JOB | {"idempotency_key": "unsaved"}))
    assert (job["status"], job["reason"], job["saved_step"]) == ("failed", "worker_died", 0)
