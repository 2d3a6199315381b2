"""Bounds of feeds, and the trainings that kept answers become."""

from typing import Any

import msgspec
import pytest

from windlass.api.inference.v1 import feeds_pb2 as pb
from windlass.api.inference.v1.inference_pb2 import TrainingGuard, TrainingSample
from windlass.core.errors import InvalidArgument
from windlass.inference.domain import Serving
from windlass.inference.feeds.feed import (
    HOUR_SECONDS,
    MAX_TOKENS,
    FedAnswer,
    Feed,
    checked_feed,
    fits,
    outlined,
    seconds_until_room,
    shown,
    still_spent,
    training_key,
    training_of,
)

GUARD = TrainingGuard(
    samples=[TrainingSample(context_ids=[5], continuation_ids=[6])], every=2, max_kl=0.5
)
SERVING = Serving(
    organization_id="org",
    project_id="proj",
    model="mine",
    version_id="mv-1",
    engine_version_id="mv-1",
    min_replicas=1,
    updated_at=0.0,
    training="hogwild",
)


def feed(**words: Any) -> Feed:
    usual: dict[str, Any] = {"id": "feed-1", "organization_id": "org", "project_id": "proj"}
    usual |= {"user_id": "ann", "key_id": "key_0", "model": "mine", "key_ids": ("key_1",)}
    usual |= {"grader": b"{}", "least_score": 0.5, "hourly": 10, "batch": 4}
    return Feed(**(usual | {"optimizer": "sgd", "learning_rate": 0.1} | words))


def asked(**words: Any) -> pb.PutFeedRequest:
    usual: dict[str, Any] = {"model": "mine", "key_ids": ["key_1"], "hourly": 10, "batch": 4}
    return pb.PutFeedRequest(**(usual | {"optimizer": "sgd", "learning_rate": 0.1} | words))


def answer(number: int) -> FedAnswer:
    sample = TrainingSample(context_ids=[1, 2], continuation_ids=[number])
    return FedAnswer(
        id=f"a-{number}", key_id="key_1", text="", item=b"", sample=sample.SerializeToString()
    )


def test_an_hour_slides() -> None:
    now = 10_000.0
    assert seconds_until_room(feed(), now) == 0
    # 8 of 10 are spent: a batch of 4 waits until the older 4 are an hour old.
    spent = ((now - 3000, 4), (now - 100, 4))
    assert seconds_until_room(feed(spent=spent), now) == 600
    assert seconds_until_room(feed(spent=spent), now + 600) == 0
    assert seconds_until_room(feed(spent=spent, hourly=12), now) == 0
    # Both have to go where the bound was lowered to one batch.
    assert seconds_until_room(feed(spent=spent, hourly=4), now) == 3500
    assert still_spent(spent, now + 600) == spent[1:]


def test_no_hour_has_more_than_its_bound_however_batches_come() -> None:
    now, taken, one = 0.0, list[tuple[float, int]](), feed(hourly=10, batch=4)
    for _ in range(50):
        now += seconds_until_room(feed(spent=tuple(taken), hourly=10), now)
        taken.append((now, one.batch))
        within = [number for at, number in taken if now - at < HOUR_SECONDS]
        assert sum(within) <= one.hourly
        now += 7
    # It is as fast as it may be: two batches an hour.
    assert 23 * HOUR_SECONDS < now < 26 * HOUR_SECONDS


def test_the_key_of_a_training_is_that_of_its_answers() -> None:
    key = training_key("feed-1", ["b", "a"])
    assert key == training_key("feed-1", ["a", "b"])
    assert len({key, training_key("feed-2", ["a", "b"]), training_key("feed-1", ["a"])}) == 3
    # No caller can have asked under it.
    assert not key.isprintable()


def test_answers_become_one_step_of_exactly_their_ids() -> None:
    one = feed(guard=GUARD.SerializeToString())
    made = training_of(one, SERVING, "key", [answer(7), answer(8)], "train-1")
    body = msgspec.json.decode(made.body)
    assert body["samples"] == [
        {"context_ids": [1, 2], "continuation_ids": [7]},
        {"context_ids": [1, 2], "continuation_ids": [8]},
    ]
    assert (body["batch"], body["epochs"], body["learning_rate"]) == (2, 1, 0.1)
    assert body["guard"]["max_kl"] == 0.5
    assert (made.total_steps, made.tokens, made.mode) == (1, 6, "hogwild")
    assert (made.user_id, made.key_id, made.version_id) == ("ann", "key_0", "mv-1")
    # Asked again it is the same request, by whatever id.
    again = training_of(one, SERVING, "key", [answer(7), answer(8)], "train-2")
    assert again.digest == made.digest
    other = training_of(feed(learning_rate=0.2), SERVING, "key", [answer(7)], "train-3")
    assert other.digest != made.digest


@pytest.mark.parametrize(
    ("words", "param"),
    [
        ({"key_ids": []}, "key_ids"),
        ({"key_ids": [""]}, "key_ids"),
        ({"key_ids": [f"key_{n}" for n in range(33)]}, "key_ids"),
        ({"least_score": float("nan")}, "least_score"),
        ({"least_score": 1e7}, "least_score"),
        ({"batch": 0}, "batch"),
        ({"batch": 257, "hourly": 500}, "batch"),
        ({"hourly": 3}, "hourly"),
        ({"hourly": 10_001}, "hourly"),
        ({"optimizer": "lion"}, "optimizer"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"guard": TrainingGuard()}, "guard.samples"),
    ],
)
def test_a_feed_that_could_train_nothing_is_refused(words: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        checked_feed(asked(**words), "hogwild")
    assert refused.value.param == param


def test_a_guard_leaves_room_for_answers() -> None:
    checked_feed(asked(guard=GUARD), "hogwild")
    sample = TrainingSample(context_ids=[10**6] * 600_000, continuation_ids=[1])
    with pytest.raises(InvalidArgument, match="guard exceeds"):
        checked_feed(asked(guard=TrainingGuard(samples=[sample], every=1)), "hogwild")


def test_answers_without_ids_or_with_too_many_are_not_kept() -> None:
    def sample(context: list[int], continuation: list[int]) -> TrainingSample:
        return TrainingSample(context_ids=context, continuation_ids=continuation)

    assert fits(sample([1], [2]), 256)
    assert not fits(sample([], [2]), 1)
    assert not fits(sample([1], []), 1)
    assert not fits(sample([1], [-1]), 1)
    assert fits(sample([1] * (MAX_TOKENS // 4 - 1), [1]), 4)
    assert not fits(sample([1] * (MAX_TOKENS // 4), [1]), 4)


def test_a_list_has_neither_graders_nor_guards() -> None:
    one = feed(guard=GUARD.SerializeToString(), kept=5, refused=2)
    whole, short = shown(one, 3), outlined(one, 3)
    assert (whole.grader, whole.guard) == (b"{}", GUARD)
    assert (short.grader, short.HasField("guard")) == (b"", False)
    assert (short.kept, short.refused, short.waiting) == (5, 2, 3)
