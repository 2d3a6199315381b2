"""A real runner that was started before its job was known, with a trainer that waits."""

import asyncio
import contextlib
import os

import psutil
import pytest
from tests.integration.runner.cases import Case
from tests.support.agents.runner_agent import TOKEN
from tests.support.environments.sandbox import needed_sandbox
from tests.support.waiting import settled

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.confinement import confinement

pytestmark = pytest.mark.torch

# What one takes: most of it are libraries.
SPARE_BYTES = 1.5 * 2**30


@pytest.fixture
def pipe() -> tuple[int, int]:
    """The ends of a pipe; who uses it closes it."""
    return os.pipe()


def final(case: Case) -> bytes:
    """The weights of the only model."""
    (model,) = case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)
    return (model.folder / "adapter_model.safetensors").read_bytes()


def hand_over(write: int) -> None:
    os.write(write, TOKEN.encode())
    os.close(write)


async def waits(case: Case, runner: asyncio.subprocess.Process) -> psutil.Process:
    """Returns the trainer of a spare once its imports are done and it uses no processor."""

    await case.until(lambda: spares(case, runner))
    await settled(lambda: used(case, runner), seconds=1)
    return spares(case, runner)[0]


def spares(case: Case, runner: asyncio.subprocess.Process) -> list[psutil.Process]:
    """Those that wait for a job; one may end while it is looked at."""
    found = []
    for each in case.trainers(runner):
        with contextlib.suppress(psutil.Error):
            if "--wait" in each.cmdline()[:5]:
                found.append(each)
    return found


def used(case: Case, runner: asyncio.subprocess.Process) -> float:
    """Seconds of a processor that a spare has used."""
    total = 0.0
    for each in members(case, runner):
        with contextlib.suppress(psutil.Error):
            total += each.cpu_times().user
    return total


def members(case: Case, runner: asyncio.subprocess.Process) -> list[psutil.Process]:
    return [psutil.Process(runner.pid), *case.trainers(runner)]


async def test_a_spare_trains_what_a_cold_start_trains(case: Case) -> None:
    """Bit for bit, behind the walls that both have."""
    needed_sandbox()
    case.assign(epochs=1, dropout=0.1)
    models = []
    for flags in ((), ("--spare",)):
        runner = await case.start(*flags, walls=confinement("required"))
        await case.until(lambda: case.agent.finish)
        await runner.wait()
        assert case.agent.finish is not None
        assert case.agent.finish.outcome == pb.OUTCOME_SUCCEEDED, case.log()
        models.append((final(case), case.agent.values("train_loss")))
        case.agent.artifacts.clear()
        case.agent.begin_attempt()
    assert models[0] == models[1]


async def test_a_spare_waits_still_and_small_and_trains_in_the_same_process(
    case: Case, pipe: tuple[int, int]
) -> None:
    case.assign(epochs=1)
    read, write = pipe
    runner = await case.start("--spare", token=read, cold=True)
    trainer = await waits(case, runner)
    taken = sum(process.memory_info().rss for process in members(case, runner))
    assert taken < SPARE_BYTES
    assert not case.agent.events
    hand_over(write)
    await case.until(lambda: case.agent.values("train_loss"))
    assert trainer.is_running()
    assert await runner.wait() == 0, case.log()


@pytest.mark.parametrize("walled", [False, True])
async def test_a_spare_without_a_job_ends(
    case: Case, pipe: tuple[int, int], *, walled: bool
) -> None:
    """As when its agent was killed: nobody holds the other end of its pipe any more."""
    if walled:
        needed_sandbox()
    walls = confinement("required") if walled else None
    read, write = pipe
    runner = await case.start("--spare", token=read, cold=True, walls=walls)
    await case.until(lambda: spares(case, runner))
    trainers = case.trainers(runner)
    os.close(write)
    assert await runner.wait() == 0
    _, alive = psutil.wait_procs(trainers, timeout=30)
    assert not alive
    assert not case.agent.events


@pytest.mark.long
async def test_a_spare_whose_trainer_died_starts_another(case: Case, pipe: tuple[int, int]) -> None:
    case.assign(epochs=1)
    read, write = pipe
    runner = await case.start("--spare", token=read, cold=True)
    trainer = await waits(case, runner)
    trainer.kill()
    await case.until(lambda: not trainer.is_running())
    hand_over(write)
    assert await runner.wait() == 0, case.log()
    assert case.agent.finish is not None
    assert case.agent.finish.outcome == pb.OUTCOME_SUCCEEDED


async def test_a_job_that_needs_other_walls_gets_its_own_trainer(case: Case) -> None:
    """Two processes are torchrun's to start."""
    case.assign(epochs=1, processes=2)
    place = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "0"}
    runner = await case.start("--spare", environ=place)
    assert await runner.wait() == 0, case.log()
    assert case.agent.finish is not None
    assert case.agent.finish.outcome == pb.OUTCOME_SUCCEEDED
