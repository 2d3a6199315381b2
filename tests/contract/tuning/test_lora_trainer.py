"""The engine behind the port of trainers: loops of several tenants at once, lost and resumed."""

import asyncio
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.factories import tuning_engines as make

from windlass.tuning_api.trainers.port import RunNotOpen, Trainer, TrainerLost
from windlass.tuning_api.trainers.records import (
    BatchLosses,
    Datum,
    DType,
    FailureCategory,
    FolderWritten,
    ForwardBackward,
    LoadState,
    Operation,
    OperationFailed,
    OptimStep,
    Run,
    SampleRequest,
    Samples,
    SaveAdapter,
    SaveState,
    StateLoaded,
    Stepped,
    Tensor,
)
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.trainer.loading import load_trainer
from windlass_agent.tuning.trainer.lora_trainer import LoraTrainer

BASE = "tiny"
STEP = OptimStep({"learning_rate": 1e-2})
ONE = Run("one", "project-1", BASE, rank=4, seed=7, is_exclusive=True)
OTHER = Run("other", "project-2", BASE, rank=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "model"
    make.network().save_pretrained(path)
    return path


@pytest.fixture
def trainers(folder: Path) -> Iterator[Any]:
    """Makes trainers, which are stopped at the end."""
    made: list[LoraTrainer] = []

    def start() -> LoraTrainer:
        made.append(load_trainer({BASE: folder}, TuningLimits(rank=32)))
        return made[-1]

    yield start
    for trainer in made:
        asyncio.run(trainer.stop())


def tensor(values: Any, dtype: DType = DType.FLOAT32) -> Tensor:
    kinds = {DType.FLOAT32: "<f4", DType.INT32: "<i4", DType.INT64: "<i8"}
    array = np.array(values, kinds[dtype])
    return Tensor(dtype, array.shape, array.tobytes())


def datum(draw: int, length: int = 12) -> Datum:
    made = make.example(draw, length)
    return Datum(
        tensor(made.tokens, DType.INT32),
        {
            "target_tokens": tensor(made.inputs["target_tokens"], DType.INT64),
            "weights": tensor(made.inputs["weights"]),
        },
    )


def losses(*data: Datum, forward: bool = False) -> ForwardBackward:
    return ForwardBackward(data, "cross_entropy", is_forward_only=forward)


async def loss(trainer: Trainer, run: str) -> float:
    [outcome] = await trainer.execute(run, [losses(datum(1), forward=True)])
    assert isinstance(outcome, BatchLosses)
    return outcome.metrics["loss:sum"]


async def supervised(trainer: Trainer, run: Run, steps: int = 5) -> list[float]:
    """Losses of a loop that sends what it can ahead."""
    await trainer.open(run)
    found = []
    for _ in range(steps):
        learned, stepped = await trainer.execute(run.id, [losses(datum(1), datum(2, 20)), STEP])
        assert isinstance(learned, BatchLosses)
        assert isinstance(stepped, Stepped)
        found.append(learned.metrics["loss:sum"])
    return found


async def test_loops_of_two_projects_learn_at_once_and_as_alone(trainers: Any) -> None:
    together = trainers()
    one, other = await asyncio.gather(supervised(together, ONE), supervised(together, OTHER))
    assert one[-1] < 0.8 * one[0]
    assert other[-1] < 0.8 * other[0]
    assert await supervised(trainers(), ONE) == one
    assert await supervised(trainers(), replace(ONE, id="two", seed=8)) != one
    assert await supervised(trainers(), OTHER) == pytest.approx(other, rel=1e-5)


async def test_a_run_without_a_seed_begins_the_same_when_it_is_opened_again(trainers: Any) -> None:
    first = await supervised(trainers(), OTHER)
    assert await supervised(trainers(), OTHER) == first
    assert await supervised(trainers(), replace(OTHER, id="another")) != first


async def test_a_lost_run_goes_on_from_its_saved_state(trainers: Any, tmp_path: Path) -> None:
    first = trainers()
    await supervised(first, ONE)
    [_, saved] = await first.execute(ONE.id, [losses(datum(3)), SaveState(tmp_path / "state")])
    files = (tmp_path / "state").iterdir()
    assert saved == FolderWritten(sum(path.stat().st_size for path in files))
    rest: Sequence[Operation] = [STEP, losses(datum(4)), STEP, losses(datum(5), forward=True)]
    expected = await first.execute(ONE.id, rest)
    waiting = asyncio.create_task(first.execute(ONE.id, [losses(datum(1))] * 5000))
    sampling = asyncio.create_task(first.sample(request(max_tokens=50)))
    await first.stop()
    for task in (waiting, sampling):
        with pytest.raises(TrainerLost):
            await task
    with pytest.raises(TrainerLost):
        await first.open(OTHER)
    second = trainers()
    await second.open(ONE)
    assert await second.execute(ONE.id, [LoadState(tmp_path / "state")]) == [StateLoaded()]
    assert await second.execute(ONE.id, rest) == expected


def request(**changes: Any) -> SampleRequest:
    plain = SampleRequest(BASE, None, tensor([3, 5, 8], DType.INT32), count=2, max_tokens=4, seed=1)
    return replace(plain, **changes)


async def test_samples_are_bytes_of_one_length(trainers: Any) -> None:
    trainer = trainers()
    wish = request(with_prompt_logprobs=True, topk_prompt_logprobs=3, topk_sample_logprobs=2)
    found = await trainer.sample(wish)
    assert isinstance(found, Samples)
    assert await trainer.sample(wish) == found
    for one in found.sequences:
        assert len(one.tokens) == len(one.logprobs) == 16
        assert not one.was_stopped
        assert one.topk is not None
        assert (one.topk.k, one.topk.length) == (2, 4)
        assert len(one.topk.token_ids) == len(one.topk.logprobs) == 32
    assert found.prompt_logprobs is not None
    first, *others = struct.unpack("<3f", found.prompt_logprobs)
    assert np.isnan(first)
    assert all(value < 0 for value in others)
    assert found.topk_prompt_logprobs is not None
    assert len(found.topk_prompt_logprobs.logprobs) == 36
    plain = await trainer.sample(request())
    assert isinstance(plain, Samples)
    assert (plain.prompt_logprobs, plain.topk_prompt_logprobs) == (None, None)
    unseeded = [await trainer.sample(request(seed=None, max_tokens=20)) for _ in range(2)]
    assert unseeded[0] != unseeded[1]


def rewarded(found: Samples) -> tuple[list[Datum], float]:
    """What a policy learns of its samples, and the share of tokens that were wished for."""
    prompt, data, rewards = [3, 5, 8], [], []
    for one in found.sequences:
        tokens = struct.unpack(f"<{len(one.tokens) // 4}i", one.tokens)
        sampled = struct.unpack(f"<{len(tokens)}f", one.logprobs)
        gained = [1.0 if token % 2 else 0.0 for token in tokens]
        rewards += gained
        whole, before = [*prompt, *tokens], len(prompt) - 1
        inputs = {
            "target_tokens": tensor(whole[1:], DType.INT64),
            "logprobs": tensor([0.0] * before + list(sampled)),
            "advantages": tensor([0.0] * before + [gain - 0.5 for gain in gained]),
        }
        data.append(Datum(tensor(whole[:-1], DType.INT32), inputs))
    return data, sum(rewards) / len(rewards)


async def reinforced(trainer: Trainer, run: Run, folder: Path) -> list[float]:
    """Mean rewards of ten steps."""
    await trainer.open(run)
    means = []
    for step in range(10):
        adapter = folder / f"{run.id}-{step}"
        await trainer.execute(run.id, [SaveAdapter(adapter)])
        found = await trainer.sample(request(adapter=adapter, count=32, max_tokens=6, seed=step))
        assert isinstance(found, Samples)
        data, mean = rewarded(found)
        means.append(mean)
        learned, _ = await trainer.execute(
            run.id,
            [
                ForwardBackward(data, "importance_sampling"),
                OptimStep({"learning_rate": 3e-2}),
            ],
        )
        assert isinstance(learned, BatchLosses)
        # What was sampled is what is trained, so that the first ratio is one.
        assert learned.metrics["ratio:max"] == pytest.approx(1, abs=1e-3)
    return means


async def test_rewards_reach_one_in_ten_steps_alone_and_beside_another(
    trainers: Any, tmp_path: Path
) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "beside").mkdir()
    run = replace(ONE, rank=8)
    alone = await reinforced(trainers(), run, tmp_path / "alone")
    assert alone[0] < 0.8
    assert alone[-1] == 1.0
    shared = trainers()
    beside, _ = await asyncio.gather(
        reinforced(shared, run, tmp_path / "beside"),
        reinforced(shared, replace(run, id="second", seed=3), tmp_path / "beside"),
    )
    assert beside == alone


@pytest.mark.parametrize(
    ("reason", "operation"),
    [
        ("wrong_shape", losses(replace(datum(1), tokens=Tensor(DType.INT32, (12,), bytes(44))))),
        ("wrong_dtype", losses(replace(datum(1), tokens=tensor([1.0])))),
        ("unknown_token", losses(replace(datum(1), tokens=tensor([-1] * 12, DType.INT32)))),
        ("invalid_setting", ForwardBackward([datum(1)], "cross_entropy", {"beta": "high"})),
        ("unknown_loss", ForwardBackward([datum(1)], "magic")),
        ("invalid_loss_graph", ForwardBackward([datum(1)], "custom")),
        ("invalid_loss_graph", ForwardBackward([datum(1)], "custom", {"graph": "{}"})),
        ("unknown_setting", OptimStep({"momentum": 0.9})),
        ("state_not_found", LoadState(Path("/nonexistent"))),
    ],
)
async def test_what_a_tenant_does_wrong_is_an_outcome_and_the_rest_goes_on(
    trainers: Any, reason: str, operation: Operation
) -> None:
    trainer = trainers()
    await trainer.open(ONE)
    learned, failed, stepped = await trainer.execute(ONE.id, [losses(datum(1)), operation, STEP])
    assert isinstance(learned, BatchLosses)
    assert isinstance(failed, OperationFailed)
    assert (failed.reason, failed.category) == (reason, FailureCategory.USER)
    assert isinstance(stepped, Stepped)
    assert stepped.metrics["step:max"] == 1


async def test_a_run_that_cannot_be_says_so_at_each_operation(trainers: Any) -> None:
    trainer = trainers()
    wishes = {
        "full_parameters": replace(ONE, rank=0),
        "rank_out_of_bounds": replace(ONE, rank=33),
        "no_targets": replace(ONE, train_attention=False, train_mlp=False, train_unembedding=False),
        "unknown_base_model": replace(ONE, base_model="other"),
        "unknown_optimizer": replace(ONE, optimizer="sgd"),
    }
    for reason, run in wishes.items():
        await trainer.open(run)
        outcomes = await trainer.execute(run.id, [STEP, STEP])
        assert [one.reason for one in outcomes] == [reason] * 2
        await trainer.close(run.id)
        with pytest.raises(RunNotOpen):
            await trainer.execute(run.id, [STEP])
    lost = await trainer.sample(request(base_model="other"))
    assert isinstance(lost, OperationFailed)
    assert lost.reason == "unknown_base_model"


async def test_bfloat16_is_read_as_it_is_written(trainers: Any) -> None:
    trainer = trainers()
    await trainer.open(ONE)
    weights = Tensor(DType.BFLOAT16, (12,), struct.pack("<H", 0x3F80) * 12)
    coarse = replace(datum(1), loss_inputs={**datum(1).loss_inputs, "weights": weights})
    plain, read = await trainer.execute(ONE.id, [losses(datum(1)), losses(coarse)])
    assert plain == read


def test_models_say_what_they_take(trainers: Any) -> None:
    [model] = trainers().base_models
    assert (model.name, model.max_rank, model.vocabulary_size) == (BASE, 32, make.VOCABULARY)
    assert (model.max_context_length, model.architecture) == (make.CONTEXT, "llama")
