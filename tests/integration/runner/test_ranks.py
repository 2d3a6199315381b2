"""Several processes of one training: what they learn together, and how one ends them all."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import psutil
import pytest
from tests.integration.runner.cases import Case
from tests.support.processes.windlass import free_port

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass_agent.runner.protocol.outcome import OutcomeKind

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
TWO = {"PET_NPROC_PER_NODE": "2"}
# Dropout would be drawn by each process anew.
WISHES: dict[str, Any] = {"epochs": 2, "dropout": 0.0}
near = partial(pytest.approx, rel=2e-3, abs=2e-3)
# Enough that a training is stopped before, and few ends of epochs to save at.
WISHED_STEPS = 40
WISHED_ROWS = 80


async def trained(
    case: Case, attempt: int, environ: Mapping[str, str] | None = None
) -> list[float]:
    """The losses of an attempt that succeeds."""
    case.agent.events.clear()
    case.agent.assignment.attempt = attempt
    runner = await case.start(environ=environ)
    assert await runner.wait() == 0, case.log()
    return case.agent.values("train_loss")


def weights(case: Case, attempt: int) -> bytes:
    folder = case.agent.store / f"artifact-{attempt}-{pb.ARTIFACT_KIND_FINAL}-{WISHED_STEPS}"
    return (folder / "adapter_model.safetensors").read_bytes()


def ranks(runner: asyncio.subprocess.Process) -> dict[str, psutil.Process]:
    """The processes that train, by rank; torchrun gives each a session of its own."""
    found = {}
    for process in psutil.Process(runner.pid).children(recursive=True):
        # It may end while it is looked at.
        with contextlib.suppress(psutil.Error):
            if "trainers.trl.entry" in " ".join(process.cmdline()):
                found[process.environ().get("RANK", "")] = process
    return {rank: process for rank, process in found.items() if rank}


@pytest.mark.timeout(600)
async def test_two_processes_and_two_nodes_learn_what_one_does(case: Case) -> None:
    case.assign(**WISHES)
    alone = await trained(case, 1)
    await two_processes(case, alone)
    await two_nodes(case, alone)


async def two_processes(case: Case, alone: list[float]) -> None:
    case.assign(**WISHES, processes=2)
    assert json.loads(case.agent.assignment.config)["batch_size"] == 4
    together = await trained(case, 2, TWO)
    assert len(together) == len(alone) == 6
    assert together == near(alone)
    assert together != near(together[::-1])
    states = case.agent.of_kind(pb.ARTIFACT_KIND_TRAINING_STATE)
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= states[-1].names
    assert case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)[-1].is_whole


async def two_nodes(case: Case, alone: list[float]) -> None:
    """Both nodes learn one thing, and the first of them reports."""
    case.assign(**WISHES, num_nodes=2)
    case.agent.events.clear()
    case.agent.artifacts.clear()
    case.agent.assignment.attempt = 3
    place = {"PET_NNODES": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port())}
    other = await case.start(node=1, environ=place | {"PET_NODE_RANK": "1"})
    first = await case.start(environ=place | {"PET_NODE_RANK": "0"})
    assert await first.wait() == 0, case.log()
    assert await other.wait() == 0
    assert case.agent.values("train_loss") == near(alone)
    finals = case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)
    assert len(finals) == 1
    # What the other node drew is with the state that the first one hands over.
    state = case.agent.of_kind(pb.ARTIFACT_KIND_TRAINING_STATE)[-1]
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= state.names
    left = json.loads((case.workdir.with_name("attempt-3-1") / "exit.json").read_text())
    assert (left["outcome"], left["reported"]) == (OutcomeKind.SUCCEEDED, True)


async def test_a_process_that_dies_ends_the_job_and_says_which(case: Case) -> None:
    case.assign(max_steps=5000, processes=2)
    runner = await case.start(cold=True, environ=TWO)
    await case.until(lambda: len(case.agent.values("train_loss")) >= 2)
    processes = ranks(runner)
    assert set(processes) == {"0", "1"}
    processes["1"].kill()
    assert await runner.wait() == 1
    code, message, _ = case.errors()
    assert code == "ProcessKilled"
    assert "Process 1" in message
    gone, alive = psutil.wait_procs(processes.values(), timeout=60)
    assert (len(gone), alive) == (2, [])


async def test_processes_do_not_outlive_their_runner(case: Case) -> None:
    case.assign(max_steps=5000, processes=2)
    runner = await case.start(cold=True, environ=TWO)
    await case.until(lambda: len(case.agent.values("train_loss")) >= 2)
    processes = ranks(runner)
    runner.kill()
    gone, alive = psutil.wait_procs(processes.values(), timeout=60)
    assert (len(gone), alive) == (2, [])


# Three trainings, of which each process begins by importing torch.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "environ",
    # What one process does is part of what two do.
    [
        pytest.param({}, id="one process", marks=pytest.mark.long),
        pytest.param(TWO, id="two processes"),
    ],
)
async def test_a_stopped_training_goes_on_bit_for_bit(case: Case, environ: dict[str, str]) -> None:
    """With dropout, so that the random state counts as well."""
    case.assign(
        rows=case.chats(WISHED_ROWS),
        max_steps=WISHED_STEPS,
        dropout=0.1,
        processes=2 if environ else 1,
    )
    whole = await trained(case, 1, environ)

    case.agent.events.clear()
    case.agent.artifacts.clear()
    case.agent.assignment.attempt = 2
    runner = await case.start(environ=environ)
    await case.until(lambda: len(case.agent.values("train_loss")) >= 2)
    runner.terminate()
    assert await runner.wait() == 143, case.log()
    before = case.agent.values("train_loss")
    states = case.agent.of_kind(pb.ARTIFACT_KIND_TRAINING_STATE)
    step = max(state.step for state in states)
    assert 2 <= step == len(before) < WISHED_STEPS
    finals = [weights(case, 1)]
    case.resume_from(step, max_steps=WISHED_STEPS)
    after = await trained(case, 3, environ)
    assert before + after == whole
    finals.append(weights(case, 3))
    assert finals[0] == finals[1]
