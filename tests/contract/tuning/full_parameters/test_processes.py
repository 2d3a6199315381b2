"""One run in several processes, and engines of other distributions, behind the same port."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file
from tests.contract.tuning.full_parameters.test_full_runs import ADAM, DATA, RATE, RUN
from tests.contract.tuning.test_lora_trainer import BASE, datum, losses, request
from tests.support.factories import tuning_engines as make
from tests.support.processes import pages
from tests.support.trainers import trainers
from tests.support.waiting import until

from windlass.tuning_api.trainers.described import described
from windlass.tuning_api.trainers.port import RunNotOpen, Trainer, TrainerLost
from windlass.tuning_api.trainers.records import (
    BatchLosses,
    LoadState,
    Operation,
    OperationFailed,
    OptimStep,
    SaveAdapter,
    SaveState,
    Stepped,
)
from windlass.tuning_api.trainers.remote.process import TrainerCommand
from windlass.tuning_api.trainers.remote.trainer import RemoteTrainer

EXAMPLE = pages.DOCS / "examples/trainer"
Begin = Callable[..., RemoteTrainer]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "model"
    make.network().save_pretrained(path)
    return path


@pytest.fixture
async def begin(folder: Path, tmp_path: Path) -> AsyncIterator[Begin]:
    """Makes trainers, of which nothing is left at the end."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "sockets").mkdir(mode=0o700)
    made: list[RemoteTrainer] = []

    def start(*, engine: str = "", processes: int = 1) -> RemoteTrainer:
        command = TrainerCommand(
            BASE,
            folder,
            32,
            tmp_path / "checkpoints",
            tmp_path / "sockets",
            is_full=True,
            engine=engine,
            processes=processes,
        )
        made.append(
            RemoteTrainer(described(BASE, folder, max_rank=32), command, idle_seconds=600.0)
        )
        return made[-1]

    yield start
    for trainer in made:
        await trainer.stop()
    await until(lambda: not trainers())
    assert list((tmp_path / "sockets").iterdir()) == []


def follower() -> psutil.Process:
    """The one that is not asked."""
    [found] = [one for one in trainers() if one.environ().get("RANK") == "1"]
    return found


async def test_two_processes_train_as_one_does(begin: Begin, tmp_path: Path) -> None:
    clipped = replace(ADAM, values={**RATE, "grad_clip_norm": 1.0})
    # Three examples for two: one of them computes the last for nothing.
    loop: list[Operation] = [losses(*DATA), ADAM, losses(datum(9)), losses(*DATA), clipped] * 3
    found, weights = {}, {}
    for count in (1, 2):
        trainer = begin(processes=count)
        await trainer.open(replace(RUN, processes=count))
        at = tmp_path / "checkpoints" / str(count)
        saves: list[Operation] = [SaveState(at / "state"), SaveAdapter(at / "model")]
        rest: list[Operation] = [losses(*DATA), ADAM, losses(*DATA, forward=True)]
        outcomes = await trainer.execute(RUN.id, [*loop, losses(datum(4)), *saves, *rest])
        assert not [one for one in outcomes if isinstance(one, OperationFailed)]
        again = await trainer.execute(RUN.id, [LoadState(at / "state"), *rest])
        # With moments, and gradients that were not applied yet.
        assert again[1:] == outcomes[-3:]
        refused: list[Operation] = [losses(datum(1)), OptimStep({"learning_rate": 1.0, "eps": 0.0})]
        assert isinstance((await trainer.execute(RUN.id, refused))[1], OperationFailed)
        found[count] = [one.metrics for one in outcomes if isinstance(one, BatchLosses | Stepped)]
        weights[count] = load_file(at / "model" / "model.safetensors")
        assert len(trainers()) == (1 if count == 1 else 3)
        await trainer.stop()
    for one, two in zip(found[1], found[2], strict=True):
        assert two == pytest.approx(one, rel=1e-5)
    for name, weight in weights[1].items():
        assert (weights[2][name] - weight).abs().max() < 1e-5


async def lost(trainer: Trainer) -> None:
    """Asks until that is lost."""
    with suppress(TrainerLost, RunNotOpen):
        while True:
            await trainer.execute(RUN.id, [losses(*DATA)])


async def test_a_lost_process_ends_all_of_its_run_and_another_goes_on(
    begin: Begin, tmp_path: Path
) -> None:
    trainer = begin(processes=2)
    run, state = replace(RUN, processes=2), tmp_path / "checkpoints" / "state"
    await trainer.open(run)
    await trainer.execute(RUN.id, [losses(*DATA), ADAM, losses(datum(2)), SaveState(state)])
    rest: list[Operation] = [ADAM, losses(*DATA), ADAM, losses(*DATA, forward=True)]
    expected = await trainer.execute(RUN.id, rest)
    os.kill(follower().pid, signal.SIGKILL)
    await lost(trainer)
    await until(lambda: not trainers())
    await trainer.open(run)
    resumed = await trainer.execute(RUN.id, [LoadState(state), *rest])
    assert resumed[1:] == expected
    # Whoever starts them all is killed, and they end too.
    os.kill(trainer.pid, signal.SIGKILL)
    await lost(trainer)
    await until(lambda: not trainers(), seconds=30)


async def learned(trainer: Trainer, steps: int = 4) -> list[float]:
    """Losses of a loop of one batch."""
    await trainer.open(RUN)
    found = []
    for _ in range(steps):
        computed, _stepped = await trainer.execute(RUN.id, [losses(*DATA), ADAM])
        assert isinstance(computed, BatchLosses), computed
        found.append(computed.metrics["loss:sum"])
    return found


async def test_an_engine_of_another_distribution_trains_as_ours(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, *offline, "--target", site, EXAMPLE], check=True, capture_output=True, timeout=120
    )
    monkeypatch.setenv("PYTHONPATH", str(site))
    # It may use as many processes as it likes: torchrun is for ours.
    plain, ours = begin(engine="plain", processes=2), begin()
    found = await learned(plain)
    assert len(trainers()) == 1
    assert found == pytest.approx(await learned(ours), rel=1e-5)
    model = tmp_path / "checkpoints" / "model"
    model.mkdir()
    [saved] = await plain.execute(RUN.id, [SaveAdapter(model)])
    assert not isinstance(saved, OperationFailed)
    # What it saved is a model like any other.
    sampled = await ours.sample(request(adapter=model))
    assert not isinstance(sampled, OperationFailed)
    with pytest.raises(TrainerLost):
        await begin(engine="none").open(RUN)
