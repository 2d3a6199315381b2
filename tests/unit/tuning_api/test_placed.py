"""Trainers of several models: each is asked to close what it has or keeps a place for."""

from typing import Any, cast

import pytest

from windlass.tuning_api.trainers.placed import TrainersByModel
from windlass.tuning_api.trainers.port import Trainer
from windlass.tuning_api.trainers.records import DType, Run, SampleRequest, Tensor
from windlass.tuning_api.trainers.seats import SeatAwaited

PROMPT = Tensor(DType.INT32, (1,), b"\1\0\0\0")


class Dedicated:
    """Has no room for runs; notes what it is asked to close."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    async def open(self, run: Run) -> None:
        raise SeatAwaited("no room")

    async def sample(self, request: SampleRequest) -> Any:
        return None

    async def close(self, run_id: str) -> None:
        self.closed.append(run_id)


async def test_what_waits_or_samples_is_closed_once() -> None:
    dedicated = Dedicated()
    trainers = TrainersByModel([], cast(Trainer, dedicated))
    run = Run(id="session-1:train:0", project_id="p", base_model="toy", rank=0)
    with pytest.raises(SeatAwaited):
        await trainers.open(run)
    await trainers.sample(SampleRequest("toy", None, PROMPT, 1, 1, session_id="session-1"))
    for _ in range(2):
        await trainers.close(run.id)
        await trainers.close("session-1")
    assert dedicated.closed == [run.id, "session-1"]
