"""TorchTune's recipes for several devices, as processes of a CPU: FSDP2 over gloo.

What one process does too, such as going on where it was stopped, is tested of both here.
"""

import json
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import pytest
from peft import PeftModel
from tests.integration.runner.cases import Case
from tests.integration.torchtune.cases import assign, final, finish, held_out_loss
from tests.support.agents.runner_agent import RunnerAgent
from tests.support.processes.windlass import free_port
from transformers import AutoModelForCausalLM

from windlass.api.runner.v1 import runner_pb2 as pb

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
TWO = {"PET_NPROC_PER_NODE": "2"}
near = partial(pytest.approx, rel=2e-3, abs=2e-3)
# TorchTune has each process draw its part of an adapter from a seed of its own; at these rates
# the sixth step differs by a sixth.
near_another_start = partial(pytest.approx, rel=0.25)
# A margin is a difference, of which the draw changes more than of a loss.
near_another_margin = partial(pytest.approx, rel=0.15)


def begin_anew(case: Case) -> None:
    """Forgets what was, for another training of the same job."""
    case.agent.begin_attempt()
    case.agent.artifacts.clear()


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param({}, id="lora", marks=pytest.mark.long),
        pytest.param({"use_dora": True}, id="dora", marks=pytest.mark.long),
        # Two nodes below do the same.
        pytest.param({"lora": False}, id="full", marks=pytest.mark.long),
    ],
)
async def test_two_processes_learn_what_one_does(
    case: Case, python: Path, extra: dict[str, Any]
) -> None:
    assign(case, epochs=2, validation=True, **extra)
    await finish(case, python)
    alone = [case.agent.values(name) for name in ("train_loss", "valid_loss")]
    assert case.agent.finish is not None
    tokens = case.agent.finish.trained_tokens

    begin_anew(case)
    assign(case, epochs=2, validation=True, processes=2, **extra)
    assert json.loads(case.agent.assignment.config)["batch_size"] == 4
    case.agent.assignment.attempt = 2
    await finish(case, python, TWO)
    together = [case.agent.values(name) for name in ("train_loss", "valid_loss")]
    assert [len(values) for values in together] == [6, 2]
    is_adapter = extra.get("lora", True)
    # The first step is taken with a rate of zero, so that two know nothing of what was drawn.
    assert together[0][:2] == near(alone[0][:2])
    for values, expected in zip(together, alone, strict=True):
        assert values == (near_another_start if is_adapter else near)(expected)
        assert values[-1] < values[0] - 0.5
    assert case.agent.finish.trained_tokens == tokens
    made = final(case)
    if is_adapter:
        base = AutoModelForCausalLM.from_pretrained(case.model)
        model = PeftModel.from_pretrained(base, made.folder)
    else:
        model = AutoModelForCausalLM.from_pretrained(made.folder)
    assert held_out_loss(case, model) == pytest.approx(together[1][-1], rel=1e-3)


@pytest.mark.long
async def test_two_processes_widen_the_margin_as_one_does(case: Case, python: Path) -> None:
    held_out = case.preferences(7)
    assign(case, method="dpo", rows=case.preferences(24), held_out=held_out, epochs=3)
    await finish(case, python)
    alone = case.agent.values("train_reward_margin")
    judged = case.agent.values("valid_reward_margin")
    begin_anew(case)
    assign(case, method="dpo", rows=case.preferences(24), held_out=held_out, epochs=3, processes=2)
    case.agent.assignment.attempt = 2
    await finish(case, python, TWO)
    assert case.agent.values("valid_reward_margin") == near_another_margin(judged)
    together = case.agent.values("train_reward_margin")
    assert len(together) == 9
    assert together == near_another_margin(alone)
    assert together[-1] > 0.1
    assert final(case).is_adapter


async def test_two_nodes_train_every_weight_and_the_first_speaks(case: Case, python: Path) -> None:
    assign(case, epochs=2, lora=False)
    await finish(case, python)
    alone = case.agent.values("train_loss")
    begin_anew(case)
    assign(case, epochs=2, lora=False, num_nodes=2)
    case.agent.assignment.attempt = 2
    place = {"PET_NNODES": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port())}
    flags = ("--torchtune-python", str(python))
    other = await case.start(*flags, node=1, environ=place | {"PET_NODE_RANK": "1"})
    first = await case.start(*flags, environ=place | {"PET_NODE_RANK": "0"})
    assert await first.wait() == 0, case.log()
    assert await other.wait() == 0
    assert case.agent.values("train_loss") == near(alone)
    assert not final(case).is_adapter


# Of a training that is ended before: in all, and of an epoch.
STEPS, EPOCH = 36, 6
# Three trainings each: the hardest, and the rest is `long`.
HARDEST = {("two processes", "lora", "killed")}


def ways() -> Iterator[Any]:
    values = ({"one process": {}, "two processes": TWO}, {"lora": True, "full": False})
    for names in product(*values, ("stopped", "killed")):
        processes, kind, end = names
        yield pytest.param(
            values[0][processes],
            values[1][kind],
            end == "killed",
            id="-".join(names),
            marks=[] if names in HARDEST else [pytest.mark.long],
        )


@pytest.mark.parametrize(("environ", "lora", "is_killed"), list(ways()))
async def test_an_attempt_that_ends_within_an_epoch_is_gone_on_from_as_if_nothing_had_been(
    case: Case, python: Path, environ: dict[str, str], lora: bool, is_killed: bool
) -> None:
    extra: dict[str, Any] = {"lora": lora}
    if lora:
        extra["dropout"] = 0.1
    if is_killed:
        extra["save_steps"] = 4
    rows = case.chats(8 * EPOCH)
    processes = 2 if environ else 1
    assign(case, rows=rows, epochs=STEPS // EPOCH, processes=processes, **extra)
    await finish(case, python, environ)
    agent = case.agent
    assert agent.finish is not None
    straight, tokens = agent.values("train_loss"), agent.finish.trained_tokens

    begin_anew(case)
    runner = await case.start("--torchtune-python", str(python), environ=environ)
    if is_killed:
        await case.until(lambda: _states_within(agent))
        runner.kill()
        await runner.wait()
    else:
        await case.until(lambda: len(agent.metrics()) > 3)
        runner.terminate()
        assert await runner.wait() == 143, case.log()
        assert agent.finish.outcome == pb.OUTCOME_STOPPED
    # One may have been on its way when its runner was killed.
    state = [one for one in agent.of_kind(pb.ARTIFACT_KIND_TRAINING_STATE) if one.is_whole][-1]
    assert state.step < STEPS
    checkpoints = agent.of_kind(pb.ARTIFACT_KIND_CHECKPOINT)
    # Those of an epoch's end lie beside its model.
    weights = [each for each in checkpoints if each.step == state.step]
    assert len(weights) == int(state.step % EPOCH == 0)
    agent.assignment.resume.step = state.step
    for artifact in (*weights, state):
        for path in sorted(artifact.folder.iterdir()):
            agent.assignment.resume.files.append(agent.add_file(path, path.name))

    agent.begin_attempt()
    await finish(case, python, environ)
    assert [m.step for m in agent.metrics()] == list(range(state.step + 1, STEPS + 1))
    assert agent.values("train_loss") == straight[state.step :]
    assert agent.finish.trained_tokens == tokens


def _states_within(agent: RunnerAgent) -> list[int]:
    """Steps within an epoch whose state is uploaded, of the newest alone."""
    states = agent.of_kind(pb.ARTIFACT_KIND_TRAINING_STATE)[-1:]
    return [each.step for each in states if each.is_whole and each.step % EPOCH]


# TRL's do the same, by the same torchrun.
@pytest.mark.long
async def test_a_process_that_dies_ends_the_job_and_says_which(
    case: Case, cold_python: Path
) -> None:
    assign(case, epochs=50, processes=2)
    runner = await case.start("--torchtune-python", str(cold_python), environ=TWO)
    await case.until(lambda: len(case.agent.values("train_loss")) >= 2)
    processes = {
        process.environ().get("RANK", ""): process
        for process in psutil.Process(runner.pid).children(recursive=True)
        if "trainers.torchtune.entry" in " ".join(process.cmdline())
    }
    processes["1"].kill()
    assert await runner.wait() == 1
    code, message, _ = case.errors()
    assert code == "ProcessKilled"
    assert "Process 1" in message
    _, alive = psutil.wait_procs(processes.values(), timeout=60)
    assert not alive


async def test_what_cannot_be_trained_is_said_once(case: Case, python: Path) -> None:
    assign(case, rows=case.preferences(4), processes=2)
    await (await case.start("--torchtune-python", str(python), environ=TWO)).wait()
    code, message, param = case.errors()
    assert (code, param) == ("invalid_training_file", "training_file")
    assert "needs chat examples" in message
