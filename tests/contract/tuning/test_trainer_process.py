"""A trainer in a process of its own: the same bits as in this one, lost, replaced, and ended."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
from tests.contract.tuning.test_lora_trainer import (
    BASE,
    ONE,
    OTHER,
    STEP,
    datum,
    losses,
    reinforced,
    request,
    supervised,
    tensor,
)
from tests.support.factories import tuning_engines as make
from tests.support.waiting import until

from windlass.api.trainer.v1 import trainer_pb2 as pb
from windlass.api.trainer.v1.trainer_pb2_grpc import TrainerServiceStub
from windlass.tuning_api.trainers.described import described
from windlass.tuning_api.trainers.port import RunNotOpen, TrainerLost
from windlass.tuning_api.trainers.records import (
    DType,
    FolderWritten,
    ForwardBackward,
    LoadState,
    Operation,
    OperationFailed,
    Samples,
    SaveState,
    StateLoaded,
)
from windlass.tuning_api.trainers.remote.process import TrainerCommand, TuningProcess
from windlass.tuning_api.trainers.remote.trainer import RemoteTrainer
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.trainer.loading import load_trainer

RANK = 32
# Of more bytes than a message of gRPC holds.
LARGE = losses(
    replace(datum(1), loss_inputs={**datum(1).loss_inputs, "other": tensor(np.zeros(5 * 2**20))})
)
Begin = Callable[..., RemoteTrainer]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "model"
    make.network().save_pretrained(path)
    return path


@pytest.fixture
def command(folder: Path, tmp_path: Path) -> TrainerCommand:
    for name in ("checkpoints", "sockets"):
        (tmp_path / name).mkdir(mode=0o700)
    return TrainerCommand(
        BASE, folder, RANK, checkpoints=tmp_path / "checkpoints", sockets=tmp_path / "sockets"
    )


@pytest.fixture
async def begin(command: TrainerCommand) -> AsyncIterator[Begin]:
    """Makes trainers, of which nothing is left at the end."""
    made: list[RemoteTrainer] = []

    def start(*, idle_seconds: float = 600.0) -> RemoteTrainer:
        model = described(BASE, command.folder, max_rank=RANK)
        made.append(RemoteTrainer(model, command, idle_seconds=idle_seconds))
        return made[-1]

    yield start
    pids = [one.pid for one in made if one.pid]
    for trainer in made:
        await trainer.stop()
    assert not any(map(psutil.pid_exists, pids))
    assert list(command.sockets.iterdir()) == []


async def test_loops_have_the_bits_that_they_have_in_one_process(
    begin: Begin, command: TrainerCommand
) -> None:
    remote = begin()
    here = load_trainer({BASE: command.folder}, TuningLimits(rank=RANK))
    try:
        assert list(remote.base_models) == list(here.base_models)
        found, _ = await asyncio.gather(supervised(remote, ONE), supervised(remote, OTHER))
        assert found == await supervised(here, ONE)
        wish = request(with_prompt_logprobs=True, topk_prompt_logprobs=3, topk_sample_logprobs=2)
        assert await remote.sample(wish) == await here.sample(wish)
        assert await remote.sample(request()) == await here.sample(request())
        run = replace(ONE, id="reinforced", rank=8)
        adapters = command.checkpoints
        (adapters / "remote").mkdir()
        (adapters / "here").mkdir()
        rewards = await reinforced(remote, run, adapters / "remote")
        assert rewards == await reinforced(here, run, adapters / "here")
        assert rewards[-1] == 1.0
        odd: Operation
        for odd in (
            ForwardBackward([datum(1)], "magic"),
            ForwardBackward([datum(1)], "custom"),
            LARGE,
        ):
            assert await remote.execute(ONE.id, [odd, STEP]) == await here.execute(
                ONE.id, [odd, STEP]
            )
        refused = replace(ONE, id="refused", rank=RANK + 1)
        for trainer in (remote, here):
            await trainer.open(refused)
            [outcome] = await trainer.execute(refused.id, [STEP])
            assert isinstance(outcome, OperationFailed)
            assert outcome.reason == "rank_out_of_bounds"
            await trainer.close(refused.id)
            with pytest.raises(RunNotOpen):
                await trainer.execute(refused.id, [STEP])
    finally:
        await here.stop()


async def test_a_killed_process_is_lost_and_the_next_goes_on_from_the_saved_state(
    begin: Begin, command: TrainerCommand
) -> None:
    trainer, state = begin(), command.checkpoints / "state"
    await supervised(trainer, ONE)
    [_, saved] = await trainer.execute(ONE.id, [losses(datum(3)), SaveState(state)])
    assert isinstance(saved, FolderWritten)
    rest: list[Operation] = [STEP, losses(datum(4)), STEP, losses(datum(5), forward=True)]
    expected = await trainer.execute(ONE.id, rest)
    killed = trainer.pid
    waiting = asyncio.create_task(trainer.execute(ONE.id, [losses(datum(1))] * 200))
    sampling = asyncio.create_task(trainer.sample(request(max_tokens=50, count=64)))
    await asyncio.wait({waiting, sampling}, timeout=0.05)
    os.kill(killed, signal.SIGKILL)
    for task in (waiting, sampling):
        with pytest.raises(TrainerLost):
            await task
    with pytest.raises(RunNotOpen):
        await trainer.execute(ONE.id, [STEP])
    await trainer.open(ONE)
    assert trainer.pid not in (0, killed)
    assert await trainer.execute(ONE.id, [LoadState(state)]) == [StateLoaded()]
    assert await trainer.execute(ONE.id, rest) == expected


async def test_a_process_that_is_idle_ends_and_the_next_call_starts_one(begin: Begin) -> None:
    trainer = begin(idle_seconds=0.2)
    await trainer.open(ONE)
    first = trainer.pid
    found = await trainer.sample(request())
    assert isinstance(found, Samples)
    assert trainer.pid == first
    await trainer.close(ONE.id)
    await until(lambda: not psutil.pid_exists(first))
    assert trainer.pid == 0
    assert await trainer.sample(request()) == found
    assert trainer.pid != first


@pytest.fixture
async def process(command: TrainerCommand) -> AsyncIterator[TuningProcess]:
    started = await TuningProcess.start(command)
    yield started
    await started.end()


async def test_strangers_and_folders_elsewhere_are_refused(
    process: TuningProcess, command: TrainerCommand, tmp_path: Path
) -> None:
    assert process.socket.parent.stat().st_mode & 0o777 == 0o700
    channel: Any = grpc.aio.insecure_channel(f"unix:{process.socket}")
    async with channel:
        stub: Any = TrainerServiceStub(channel)
        ours = (("authorization", f"Bearer {process.token}"),)
        await stub.Describe(pb.DescribeRequest(), metadata=ours, wait_for_ready=True)
        for theirs in ((), (("authorization", "Bearer "),), (("authorization", "Bearer x"),)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Describe(pb.DescribeRequest(), metadata=theirs)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        (command.checkpoints / "link").symlink_to(tmp_path)
        for path in ("/etc", f"{command.checkpoints}/../x", f"{command.checkpoints}/link/x"):
            prompt = pb.Tensor(dtype=DType.INT32, shape=[1], data=bytes(4))
            wish = pb.SampleRequest(base_model=BASE, adapter=path, prompt=prompt, count=1)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                [_ async for _ in stub.Sample(wish, metadata=ours)]
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_process_ends_with_the_one_that_started_it(process: TuningProcess) -> None:
    # As the pipe does when its other end dies, here before the model is loaded.
    process._pipe.close()
    async with asyncio.timeout(60):
        await process.wait()
    assert not process.socket.parent.exists()


async def test_a_model_that_cannot_be_loaded_is_a_lost_trainer(
    command: TrainerCommand, tmp_path: Path
) -> None:
    model = described(BASE, command.folder, max_rank=RANK)
    broken = replace(command, folder=tmp_path / "nothing")
    trainer = RemoteTrainer(model, broken, idle_seconds=600)
    try:
        with pytest.raises(TrainerLost):
            await trainer.open(ONE)
        with pytest.raises(TrainerLost, match="could not be started"):
            await trainer.sample(request())
    finally:
        await trainer.stop()
