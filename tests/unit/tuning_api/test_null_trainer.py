"""The trainer that computes nothing keeps the port's contract."""

import struct
from pathlib import Path

import pytest

from windlass.tuning_api.trainers.null import NullTrainer
from windlass.tuning_api.trainers.port import RunNotOpen, Trainer
from windlass.tuning_api.trainers.records import (
    BatchLosses,
    Datum,
    DType,
    FolderWritten,
    ForwardBackward,
    LoadState,
    OperationFailed,
    OptimStep,
    Run,
    SampleRequest,
    Samples,
    SaveState,
    StateLoaded,
    Stepped,
    Tensor,
)

RUN = Run(id="s:train:0", project_id="proj_a", base_model="null")
TOKENS = Tensor(DType.INT32, (3,), struct.pack("<3i", 5, 6, 7))


async def _trainer() -> Trainer:
    trainer: Trainer = NullTrainer(["null"])
    await trainer.open(RUN)
    return trainer


async def test_operations_have_outcomes_in_their_order() -> None:
    trainer = await _trainer()
    data = [Datum(TOKENS, {"target_tokens": TOKENS})] * 2
    outcomes = await trainer.execute(
        RUN.id, [ForwardBackward(data, "cross_entropy"), OptimStep(), OptimStep()]
    )
    assert isinstance(outcomes[0], BatchLosses)
    assert [output["logprobs"].shape for output in outcomes[0].outputs] == [(3,), (3,)]
    assert outcomes[1:] == [Stepped({"step:max": 1.0}), Stepped({"step:max": 2.0})]


async def test_an_unknown_loss_fails_and_what_follows_goes_on() -> None:
    trainer = await _trainer()
    outcomes = await trainer.execute(RUN.id, [ForwardBackward([], "boom"), OptimStep()])
    assert isinstance(outcomes[0], OperationFailed)
    assert outcomes[0].reason == "unknown_loss"
    assert outcomes[1] == Stepped({"step:max": 1.0})


async def test_a_saved_state_goes_on_where_it_was(tmp_path: Path) -> None:
    trainer = await _trainer()
    outcomes = await trainer.execute(RUN.id, [OptimStep(), SaveState(tmp_path), OptimStep()])
    assert isinstance(outcomes[1], FolderWritten)
    loaded = await trainer.execute(RUN.id, [LoadState(tmp_path), OptimStep()])
    assert loaded == [StateLoaded(), Stepped({"step:max": 2.0})]


async def test_a_folder_without_a_state_is_refused(tmp_path: Path) -> None:
    trainer = await _trainer()
    [outcome] = await trainer.execute(RUN.id, [LoadState(tmp_path)])
    assert isinstance(outcome, OperationFailed)


async def test_a_closed_run_is_not_open() -> None:
    trainer = await _trainer()
    await trainer.close(RUN.id)
    with pytest.raises(RunNotOpen):
        await trainer.execute(RUN.id, [OptimStep()])


async def test_samples_are_as_many_and_as_long_as_asked() -> None:
    trainer = await _trainer()
    request = SampleRequest("null", None, TOKENS, count=2, max_tokens=4, with_prompt_logprobs=True)
    samples = await trainer.sample(request)
    assert isinstance(samples, Samples)
    assert [len(sequence.tokens) for sequence in samples.sequences] == [16, 16]
    assert samples.prompt_logprobs is not None
    first, *others = struct.unpack("<3f", samples.prompt_logprobs)
    assert first != first
    assert others == [0.0, 0.0]
