"""Jobs of the worker on weights that no engine serves, with a fence that is always open."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import torch
from tests.support.engine_training.seen import seen_engine

from windlass_vllm.losses.datums import (
    DatumChunk,
    Float32Tensor,
    Int64Tensor,
    ModelInput,
    TinkerDatum,
)
from windlass_vllm.messages import FromWorker, Guard, JobEnded, Mode, StepDone, TokenSample, Train
from windlass_vllm.optimizers.settings import OptimizerSettings
from windlass_vllm.training.running import TrainingRun
from windlass_vllm.training.seen_engine import SeenEngine
from windlass_vllm.weights.private_folder import OwnFolder

pytestmark = pytest.mark.torch

SAMPLE = TokenSample((1, 2, 3), (4, 5, 6))


class OpenFence:
    """A caller that never lets a job wait, and counts how often weights changed behind it."""

    def __init__(self) -> None:
        self.said: list[FromWorker] = []
        self.passed = 0

    def send(self, message: FromWorker) -> None:
        """Keeps what was said."""
        self.said.append(message)

    def is_cancelled(self, job: str) -> bool:
        """Returns that it is not."""
        return False

    @contextmanager
    def fence(self, job: str, *, certain: bool = False) -> Iterator[None]:
        """Is open."""
        self.passed += 1
        yield


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SeenEngine]:
    own = OwnFolder(tmp_path)
    torch.manual_seed(0)
    yield seen_engine(own, layers=1, hidden=32)
    own.close()


def trained(
    engine: SeenEngine,
    caller: OpenFence,
    *,
    mode: Mode = "hogwild",
    rate: float = 0.1,
    guard: Guard | None = None,
) -> JobEnded:
    """The end of a job of 10 steps."""
    settings = OptimizerSettings(kind="sgd", learning_rate=rate)
    job = Train("job", (SAMPLE,), 10, 1, settings, mode, guard=guard)
    return TrainingRun(engine, job, caller).run()


def is_same(engine: SeenEngine, before: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one, before[name]) for name, one in engine.live.items())


@pytest.mark.parametrize("mode", ["hogwild", "fenced"])
def test_a_loss_that_is_no_number_puts_the_last_good_version_back(
    engine: SeenEngine, mode: Mode
) -> None:
    before = dict(engine.copied())
    ended = trained(engine, OpenFence(), mode=mode, rate=1e15, guard=Guard((SAMPLE,), every=100))
    assert ended.reason in ("non_finite_loss", "non_finite_gradient")
    assert ended.kept_steps == 0
    assert is_same(engine, before)


def test_without_a_guard_it_stays_as_it_is(engine: SeenEngine) -> None:
    """The comparison above can fail."""
    before = dict(engine.copied())
    ended = trained(engine, OpenFence(), rate=1e15)
    assert (ended.state, ended.kept_steps) == ("failed", None)
    assert not is_same(engine, before)


def test_all_modes_make_the_same_weights(engine: SeenEngine) -> None:
    before, found = engine.copied(), []
    behind: dict[Mode, int] = {"hogwild": 0, "fenced": 10, "shadow": 1}
    for mode, passed in behind.items():
        for name, one in engine.live.items():
            one.copy_(before[name])
        caller = OpenFence()
        assert trained(engine, caller, mode=mode).state == "succeeded"
        assert caller.passed == passed
        found.append(torch.cat([one.flatten() for one in engine.live.values()]))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_the_divergence_is_measured_from_the_start(engine: SeenEngine) -> None:
    caller = OpenFence()
    trained(engine, caller, rate=1.0, guard=Guard((SAMPLE,), every=5))
    measured = [one for one in caller.said if isinstance(one, StepDone) and one.kl is not None]
    assert [one.step for one in measured] == [5, 10]
    assert 0 < (measured[0].kl or 0) < (measured[1].kl or 0)
    trained(engine, caller, rate=0.0, guard=Guard((SAMPLE,)))
    last = caller.said[-1]
    assert isinstance(last, StepDone)
    assert last.kl == pytest.approx(0, abs=1e-6)


def test_a_policy_is_trained_by_datums_in_every_mode(engine: SeenEngine) -> None:
    """What has an advantage becomes likelier; a step without advantages moves nothing."""
    before, found = engine.copied(), []
    modes: list[Mode] = ["hogwild", "fenced", "shadow"]
    for mode in modes:
        for name, one in engine.live.items():
            one.copy_(before[name])
        caller = OpenFence()
        settings = OptimizerSettings(kind="sgd", learning_rate=1.0)
        job = Train("job", (), 3, 2, settings, mode)
        datums = (policy(0.0), policy(0.0), policy(1.0))
        job = msgspec.structs.replace(job, datums=datums, loss="importance_sampling")
        assert TrainingRun(engine, job, caller).run().state == "succeeded"
        steps = [one for one in caller.said if isinstance(one, StepDone)]
        assert [one.tokens for one in steps] == [6, 3] * 3
        assert [one.loss for one in steps[::2]] == [0.0] * 3
        assert steps[1].loss > steps[3].loss > steps[5].loss
        found.append(torch.cat([one.flatten() for one in engine.live.values()]))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def policy(advantage: float) -> TinkerDatum:
    """Three tokens that were sampled with the same log-probability."""
    return TinkerDatum(
        ModelInput((DatumChunk((1, 2)), DatumChunk((3,)))),
        {
            "target_tokens": Int64Tensor(data=(2, 3, 4)),
            "logprobs": Float32Tensor(data=(-6.0, -6.0, -6.0)),
            "advantages": Float32Tensor(data=(0.0, advantage, advantage)),
        },
    )
