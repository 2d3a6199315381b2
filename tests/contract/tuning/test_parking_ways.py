"""Each way to park a trainer: it comes back to the bit, and does nothing meanwhile.

`cuda-checkpoint` is a program of the same contract here, without a GPU.
"""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from tests.contract.tuning import cuda_checkpoint
from tests.contract.tuning.test_lora_trainer import BASE, ONE, STEP, datum, losses, request
from tests.support.waiting import PATIENCE
from transformers import LlamaConfig, LlamaForCausalLM

from windlass.tuning.seats.parking import CheckpointParking, Parking, parking_of
from windlass.tuning_api.trainers.port import TrainerLost
from windlass.tuning_api.trainers.records import Operation, OperationFailed
from windlass.tuning_api.trainers.remote.link import TrainerLink
from windlass.tuning_api.trainers.remote.process import TrainerCommand, TuningProcess
from windlass.tuning_api.trainers.seats import Unseated

WAYS = ("application", "cuda-checkpoint", "none")
# The weights alone, 63 MB in fp32.
PARKED_BYTES = 60_000_000


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> TrainerCommand:
    folder = tmp_path_factory.mktemp("parked")
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=96,
            hidden_size=512,
            intermediate_size=2048,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).save_pretrained(folder / "model")
    for name in ("checkpoints", "sockets"):
        (folder / name).mkdir(mode=0o700)
    return TrainerCommand(
        BASE, folder / "model", 32, checkpoints=folder / "checkpoints", sockets=folder / "sockets"
    )


@pytest.fixture
async def link(command: TrainerCommand) -> AsyncIterator[TrainerLink]:
    made = TrainerLink(await TuningProcess.start(command), Unseated())
    await made.describe()
    yield made
    with suppress(psutil.NoSuchProcess):
        psutil.Process(made.pid).resume()
    await made.end()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The stand-in for NVIDIA's program."""
    code = shutil.copy(cuda_checkpoint.__file__, tmp_path / "program.py")
    script = tmp_path / "cuda-checkpoint"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {code} "$@"\n')
    script.chmod(0o755)
    return script


def held(pid: int) -> int:
    """Bytes of a process's own memory, which on a CPU is the device's."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    # Weights that were just loaded are pages of their files.
    found = [line.split()[1] for line in lines if line.startswith(("RssAnon:", "RssFile:"))]
    return sum(map(int, found)) * 1024


async def test_each_way_brings_a_trainer_back_to_the_bit(link: TrainerLink, program: Path) -> None:
    runs = [replace(ONE, id=f"run-{name}", is_exclusive=True) for name in ("still", *WAYS)]
    steps: list[Operation] = [losses(datum(1)), STEP]
    found = {}
    for run in runs:
        await link.open(run)
        found[run.id] = [await link.execute(run.id, steps)]
    sampled = await link.sample(request())
    for name in WAYS:
        parking = parking_of(name, program)
        await _parked_and_back(link, parking, f"run-{name}")
    for run in runs:
        found[run.id].append(await link.execute(run.id, steps))
        assert [_bits(one) for one in found[run.id]] == [_bits(one) for one in found["run-still"]]
    assert await link.sample(request()) == sampled


async def _parked_and_back(link: TrainerLink, parking: Parking, run_id: str) -> None:
    await parking.park(link)
    working = asyncio.create_task(link.execute(run_id, [losses(datum(9), forward=True)]))
    # What keeps its device may use it; who asks it is not let in then.
    if parking.frees_device:
        done, _ = await asyncio.wait({working}, timeout=0.5)
        assert not done
    else:
        await asyncio.wait_for(asyncio.shield(working), PATIENCE)
    await parking.restore(link)
    [outcome] = await working
    assert not isinstance(outcome, OperationFailed)


def _bits(outcomes: Sequence[Any]) -> str:
    """Outcomes without the time that they took."""
    return str([replace(one, device_seconds=0) for one in outcomes])


async def test_the_application_frees_what_it_says_and_takes_it_again(link: TrainerLink) -> None:
    parking = parking_of("application", Path())
    await link.open(ONE)
    await link.execute(ONE.id, [losses(datum(1)), STEP])
    before = held(link.pid)
    freed = await parking.park(link)
    assert freed > PARKED_BYTES
    parked = held(link.pid)
    assert before - parked > 0.9 * PARKED_BYTES
    # Parked already.
    assert await parking.park(link) == freed
    await parking.restore(link)
    await parking.restore(link)
    assert held(link.pid) - parked > 0.9 * PARKED_BYTES


async def test_what_cannot_be_parked_is_lost(link: TrainerLink, program: Path) -> None:
    with pytest.raises(TrainerLost, match="could not restore it: Could not restore on process"):
        await CheckpointParking(program).restore(link)
    with pytest.raises(TrainerLost, match="cannot be started"):
        await CheckpointParking(program / "nothing").park(link)
    psutil.Process(link.pid).kill()
    await link.process.wait()
    for name in ("application", "cuda-checkpoint"):
        with pytest.raises(TrainerLost):
            await parking_of(name, program).park(link)
