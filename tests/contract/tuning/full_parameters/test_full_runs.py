"""Runs of all parameters: torch's own numbers, the same bits however asked, and models saved."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.contract.tuning.test_lora_trainer import BASE, STEP, datum, losses, request, tensor
from tests.support.factories import tuning_engines as make
from transformers import LlamaForCausalLM

from windlass.tuning_api.trainers.port import RunNotOpen, Trainer, TrainerLost
from windlass.tuning_api.trainers.records import (
    BatchLosses,
    FailureCategory,
    LoadState,
    Operation,
    OperationFailed,
    OptimStep,
    Outcome,
    Run,
    SampledSequence,
    Samples,
    SaveAdapter,
    SaveState,
    StateLoaded,
    Stepped,
)
from windlass_agent.tuning.full.loading import load_full_trainer
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.serving.servicer import Parkable

RUN = Run("run", "project", BASE, rank=0, seed=7)
RATE = {"learning_rate": 1e-3, "weight_decay": 0.01, "beta2": 0.95, "eps": 1e-8}
ADAM = OptimStep(RATE)
DATA = [datum(1), datum(2, 20), datum(3, 5)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "model"
    make.network().save_pretrained(path)
    return path


@pytest.fixture
def trainers(folder: Path) -> Iterator[Any]:
    """Makes trainers, which are stopped at the end."""
    made: list[Trainer] = []

    def start(model: Path = folder) -> Trainer:
        made.append(load_full_trainer(BASE, model, TuningLimits(rank=32)))
        return made[-1]

    yield start
    for trainer in made:
        asyncio.run(trainer.stop())


async def done(trainer: Trainer, *operations: Operation) -> Sequence[Outcome]:
    """Outcomes that are no failures."""
    found = await trainer.execute(RUN.id, operations)
    assert not [one for one in found if isinstance(one, OperationFailed)], found
    return found


async def begun(trainer: Trainer) -> Trainer:
    await trainer.open(RUN)
    return trainer


async def saved(trainer: Trainer, folder: Path) -> dict[str, bytes]:
    """The files of a state; equal where the run is."""
    await done(trainer, SaveState(folder))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_losses_and_weights_are_those_of_transformers_and_torch(
    trainers: Any, folder: Path, tmp_path: Path
) -> None:
    network = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01
    )
    trainer = await begun(trainers())
    for _ in range(4):
        learned, _stepped = await done(trainer, losses(*DATA), ADAM)
        expected = torch.zeros(())
        for draw, length in ((1, 12), (2, 20), (3, 5)):
            one = make.example(draw, length)
            logits = network(torch.from_numpy(one.tokens)[None]).logits[0]
            targets = torch.from_numpy(one.inputs["target_tokens"])
            expected = expected + torch.nn.functional.cross_entropy(
                logits, targets, reduction="sum"
            )
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        assert isinstance(learned, BatchLosses)
        assert learned.metrics["loss:sum"] == pytest.approx(float(expected.detach()), rel=1e-5)
    await done(trainer, SaveAdapter(tmp_path / "model"))
    found = LlamaForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32).state_dict()
    moved = 0
    with torch.no_grad():
        for name, weight in network.state_dict().items():
            torch.testing.assert_close(found[name], weight, rtol=0, atol=2e-5)
            moved += int(not torch.equal(weight, make.network().state_dict()[name]))
    # Embeddings, norms and the head too.
    assert moved == len(found) == 21


async def test_bits_do_not_depend_on_how_a_batch_is_split(trainers: Any, tmp_path: Path) -> None:
    whole, split, other = [await begun(trainers()) for _ in range(3)]
    await done(whole, losses(*DATA), ADAM, losses(*DATA), ADAM, losses(DATA[0]))
    for _ in range(2):
        await done(split, losses(DATA[0]), losses(*DATA, forward=True), losses(*DATA[1:]), ADAM)
    await done(split, losses(DATA[0]))
    await done(other, losses(*DATA), ADAM, losses(*DATA[:2]), ADAM, losses(DATA[0]))
    expected = await saved(whole, tmp_path / "whole")
    assert await saved(split, tmp_path / "split") == expected
    assert await saved(other, tmp_path / "other") != expected


async def test_a_state_resumed_is_the_run_uninterrupted(trainers: Any, tmp_path: Path) -> None:
    first, second = await begun(trainers()), await begun(trainers())
    # With gradients that were not applied yet.
    await done(first, losses(*DATA), ADAM, losses(DATA[1]), SaveState(tmp_path / "half"))
    rest: list[Operation] = [
        losses(DATA[2]),
        ADAM,
        losses(*DATA),
        replace(ADAM, values=RATE | {"grad_clip_norm": 1}),
    ]
    expected = await done(first, *rest)
    assert await done(second, LoadState(tmp_path / "half"), *rest) == [StateLoaded(), *expected]
    end = await saved(first, tmp_path / "end")
    assert await saved(second, tmp_path / "resumed") == end
    # Without its optimizer, and from a model, the weights alone are taken over.
    await done(first, SaveAdapter(tmp_path / "model"))
    for source in (
        LoadState(tmp_path / "end", with_optimizer=False),
        LoadState(tmp_path / "model"),
    ):
        _loaded, learned, stepped = await done(second, source, losses(*DATA, forward=True), ADAM)
        assert learned == (await done(first, losses(*DATA, forward=True)))[0]
        assert isinstance(stepped, Stepped)
        assert stepped.metrics["step:max"] == 1.0


async def test_a_run_that_was_parked_has_the_same_bits(trainers: Any, tmp_path: Path) -> None:
    still, moved = await begun(trainers()), await begun(trainers())
    for trainer in (still, moved):
        await done(trainer, losses(*DATA), ADAM, losses(DATA[1]))
    assert isinstance(moved, Parkable)
    weights = sum(one.numel() * 4 for one in make.network().parameters())
    # Weights, two moments and the gradients that were not applied yet.
    assert await moved.park() >= 4 * weights
    await moved.restore()
    for trainer in (still, moved):
        await done(trainer, losses(DATA[2]), ADAM)
    assert await saved(moved, tmp_path / "moved") == await saved(still, tmp_path / "still")


async def test_what_is_refused_leaves_no_trace(trainers: Any, tmp_path: Path) -> None:
    trainer = await begun(trainers())
    await done(trainer, losses(*DATA), ADAM, losses(DATA[0]))
    before = await saved(trainer, tmp_path / "before")
    bad = datum(1)
    infinite = replace(bad, loss_inputs={**bad.loss_inputs, "weights": _weights(3e38)})
    refused: dict[str, Operation] = {
        "non_finite_loss": losses(datum(2), infinite, infinite),
        "unknown_loss": replace(losses(bad), loss="none"),
        "invalid_setting": OptimStep({"learning_rate": -1.0}),
        "unknown_setting": OptimStep({"momentum": 1.0}),
        "non_finite_step": OptimStep({"learning_rate": 1e15, "weight_decay": 1e15, "eps": 0.0}),
        "damaged_state": LoadState(tmp_path / "nowhere"),
        "exists": SaveState(tmp_path / "before"),
    }
    for reason, operation in refused.items():
        [outcome] = await trainer.execute(RUN.id, [operation])
        assert isinstance(outcome, OperationFailed), reason
        assert outcome.reason == reason
    (tmp_path / "cut").mkdir()
    for name, content in before.items():
        (tmp_path / "cut" / name).write_bytes(
            content[:-1] + b"x" if name.startswith("weights") else content
        )
    [cut] = await trainer.execute(RUN.id, [LoadState(tmp_path / "cut")])
    assert isinstance(cut, OperationFailed)
    assert cut.reason == "damaged_state"
    assert await saved(trainer, tmp_path / "after") == before


def _weights(value: float) -> Any:
    return tensor(np.full(12, value, np.float32))


async def test_a_model_is_written_as_its_base_lies_there(
    trainers: Any, folder: Path, tmp_path: Path
) -> None:
    base = tmp_path / "bfloat16"
    tied = make.network()
    tied.config.tie_word_embeddings = True
    tied.tie_weights()
    tied.to(torch.bfloat16).save_pretrained(base, max_shard_size="60KB")
    trainer = await begun(trainers(base))
    await done(trainer, losses(*DATA), STEP, SaveAdapter(tmp_path / "model"))
    found = {path.name for path in (tmp_path / "model").iterdir()}
    assert found == {path.name for path in base.iterdir()}
    assert len(found) > 4
    for path in base.glob("*.safetensors"):
        old, new = load_file(path), load_file(tmp_path / "model" / path.name)
        assert {name: one.dtype for name, one in old.items()} == {
            name: one.dtype for name, one in new.items()
        }
        assert not any(torch.equal(old[name], new[name]) for name in old)


async def test_samples_are_of_what_was_saved_and_stay_so(trainers: Any, tmp_path: Path) -> None:
    trainer = await begun(trainers())
    await done(trainer, SaveAdapter(tmp_path / "first"))
    first = await trainer.sample(request(adapter=tmp_path / "first"))
    steps: list[Operation] = [losses(*DATA), STEP] * 5
    await done(trainer, *steps, SaveAdapter(tmp_path / "second"))
    asked = [request(adapter=tmp_path / name) for name in ("second", "first", "second", "first")]
    found = await asyncio.gather(*map(trainer.sample, asked))
    assert found[1] == found[3] == first
    assert found[0] == found[2] != first
    assert isinstance(first, Samples)
    assert isinstance(first.sequences[0], SampledSequence)
    gone = await trainer.sample(request(adapter=tmp_path / "gone"))
    assert isinstance(gone, OperationFailed)
    assert (gone.reason, gone.category) == ("state_not_found", FailureCategory.USER)


async def test_a_trainer_has_one_run_of_what_it_can_train(trainers: Any, tmp_path: Path) -> None:
    trainer = trainers()
    with pytest.raises(RunNotOpen):
        await trainer.execute(RUN.id, [])
    await begun(trainer)
    await begun(trainer)
    with pytest.raises(TrainerLost):
        await trainer.open(replace(RUN, id="another"))
    other = make.network()
    state = {f"transformer.{name}": one for name, one in other.state_dict().items()}
    other.save_pretrained(tmp_path / "renamed", state_dict=state)
    for run, model, reason in (
        (replace(RUN, optimizer="dimuon"), None, "unknown_optimizer"),
        (replace(RUN, rank=4), None, "full_parameters"),
        (RUN, tmp_path / "renamed", "unfit_base"),
    ):
        refusing = trainers(model) if model else trainers()
        await refusing.open(run)
        [outcome] = await refusing.execute(run.id, [STEP])
        assert isinstance(outcome, OperationFailed)
        assert outcome.reason == reason
