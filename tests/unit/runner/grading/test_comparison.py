"""Two models' answers, graded side by side."""

import json

import pytest
from tests.unit.runner.grading.test_judges import Platform, of_length

from windlass.graders import parse
from windlass_agent.runner.grading.comparison import compare, graded
from windlass_agent.runner.grading.rewards import Reward
from windlass_agent.runner.protocol.outcome import Failure

EXACT = parse(
    {
        "type": "string_check",
        "name": "exact",
        "operation": "eq",
        "input": "{{sample.output_json.color}}",
        "reference": "{{item.color}}",
    }
)
ITEM = b'{"color": "red"}'


async def test_answers_are_graded_by_their_examples() -> None:
    samples = ('{"color": "red"}', '{"color": "blue"}', "red")
    answers = [(sample, ITEM) for sample in samples]
    assert await graded(EXACT, answers, None) == [
        Reward(reward=1.0),
        Reward(reward=0.0),
        Reward(reward=0.0, fault="The sample is not JSON."),
    ]


async def test_models_are_asked_by_the_grader_of_the_evaluation() -> None:
    platform = Platform(of_length)
    judges = platform.judges(evaluation=True)
    rewards = await graded(EXACT, [("a", ITEM), ("aaa", ITEM)], judges)
    assert [each.reward for each in rewards] == [1, 3]
    assert [request.evaluation for request in platform.asked] == [True]
    assert json.loads(platform.asked[0].answers[0].item) == {"color": "red"}


def test_a_comparison_counts_examples_and_what_has_no_grade() -> None:
    before = [Reward(0.5), Reward(1.0), Reward(0.0, fault="No number."), Reward(0.25)]
    after = [Reward(1.0), Reward(1.0), Reward(0.5), Reward(0.0)]
    result = compare(before, after)
    assert (result.examples, result.wins, result.ties, result.losses) == (4, 2, 1, 1)
    assert (result.base.mean_reward, result.fine_tuned.mean_reward) == (0.4375, 0.625)
    assert (result.base.ungraded, result.fine_tuned.ungraded) == (1, 0)


@pytest.mark.parametrize("reward", [2.0**60, 1.7e308])
def test_a_mean_that_nobody_would_take_is_no_comparison(reward: float) -> None:
    with pytest.raises(Failure):
        compare([Reward(0.0)] * 2, [Reward(reward)] * 2)
