"""Rewards of two models' answers to the same examples, side by side."""

import asyncio
from collections.abc import Sequence
from contextlib import closing

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.graders import Grader, Subject
from windlass_agent.runner.grading.judges import Answer, Judges
from windlass_agent.runner.grading.rewards import Reward, reward_of
from windlass_agent.runner.grading.scripts import GraderPrograms
from windlass_agent.runner.protocol.outcome import Failure

# Which the platform refuses, with everything that is reported beside it.
_LARGEST = 2**53


async def graded(grader: Grader, answers: Sequence[Answer], judges: Judges | None) -> list[Reward]:
    """The reward of each answer, given by `judges` where the grader asks models.

    Raises Failure where they are away, or a program cannot grade, and CallRefused.
    """
    if judges is not None:
        grades = await judges.grades(answers)
        return [Reward(reward=each.reward, fault=each.fault) for each in grades]
    found = []
    with closing(await asyncio.to_thread(GraderPrograms, grader)) as scripts:
        for sample, item in answers:
            # Each in a thread of its own time, so that no more than one outlives a cancellation.
            found.append(await asyncio.to_thread(scripts.grade, Subject.of_json(sample, item)))
        scripts.check(found)
    return [reward_of(each) for each in found]


def compare(base: Sequence[Reward], fine_tuned: Sequence[Reward]) -> pb.EvaluationResult:
    """The means of both, and in how many examples which of them is higher; raises Failure."""
    pairs = [(after.reward, before.reward) for before, after in zip(base, fine_tuned, strict=True)]
    wins, losses = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    return pb.EvaluationResult(
        examples=len(pairs),
        base=_score(base),
        fine_tuned=_score(fine_tuned),
        wins=wins,
        ties=len(pairs) - wins - losses,
        losses=losses,
    )


def _score(rewards: Sequence[Reward]) -> pb.EvaluationScore:
    mean = sum(each.reward for each in rewards) / len(rewards)
    if not abs(mean) <= _LARGEST:
        raise Failure("evaluation_failed", f"The mean reward is beyond {_LARGEST}.")
    return pb.EvaluationScore(
        mean_reward=mean,
        ungraded=sum(bool(each.fault) for each in rewards),
    )
