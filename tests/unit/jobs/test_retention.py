"""Retention of checkpoints."""

from hypothesis import given
from hypothesis import strategies as st

from windlass.jobs.attempts.retention import dropped
from windlass.jobs.domain.job import Checkpoint, Keep


def checkpoint(step: int, **metrics: float) -> Checkpoint:
    return Checkpoint(
        id=f"c{step}", job_id="j", step=step, created_at_ms=step, model_name="m", metrics=metrics,
        artifact_id=f"a{step}",
    )  # fmt: skip


def kept(keep: Keep, *checkpoints: Checkpoint) -> set[int]:
    gone = {one.step for one in dropped(keep, checkpoints)}
    return {one.step for one in checkpoints} - gone


def test_the_latest_and_the_best_stay() -> None:
    losses = (2.0, 1.0, 1.5, 1.25, 3.0)
    made = [checkpoint(step, full_valid_loss=loss) for step, loss in enumerate(losses, 1)]
    assert kept(Keep(last=1, best=1), *made) == {2, 5}
    assert kept(Keep(last=2, best=2), *made) == {2, 4, 5}
    assert kept(Keep(last=2, best=0), *made) == {4, 5}
    assert kept(Keep(last=0, best=1), *made) == {1, 2, 3, 4, 5}


def test_more_reward_is_better_and_a_validation_counts_more_than_training() -> None:
    keep = Keep(last=1, best=1)
    rewards = [checkpoint(s, full_valid_mean_reward=r) for s, r in ((1, 0.9), (2, 0.1), (3, 0.2))]
    assert kept(keep, *rewards) == {1, 3}
    mixed = (checkpoint(1, train_loss=0.1), checkpoint(2, full_valid_loss=2.0), checkpoint(3))
    assert kept(keep, *mixed) == {2, 3}


@given(
    st.dictionaries(st.integers(1, 50), st.floats(-9, 9, width=32), min_size=1, max_size=20),
    st.integers(1, 5),
    st.integers(0, 5),
)
def test_so_many_stay_whatever_comes_in_between(
    losses: dict[int, float], last: int, best: int
) -> None:
    keep, stay = Keep(last=last, best=best), list[Checkpoint]()
    for step in sorted(losses):
        stay.append(checkpoint(step, train_loss=losses[step]))
        gone = {one.id for one in dropped(keep, stay)}
        stay = [one for one in stay if one.id not in gone]
    steps = {one.step for one in stay}
    assert len(steps) <= last + best
    assert steps >= set(sorted(losses)[-last:])
    if best:
        assert min(losses.values()) in {losses[step] for step in steps}
