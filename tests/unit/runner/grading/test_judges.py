"""Grades that models give are asked for until they come, or for as long as is bearable."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.core.backoff import Backoff
from windlass_agent.runner.grading import judges
from windlass_agent.runner.grading.judges import Judges
from windlass_agent.runner.protocol.link import AgentLink, Rejected
from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.reporting.reporter import Reporter


class Platform:
    """An agent's line, and a reporter, that keep what they are told."""

    def __init__(self, says: Callable[[pb.GradeRequest], pb.GradeResponse]) -> None:
        self._says = says
        self.asked: list[pb.GradeRequest] = []
        self.warnings: list[str] = []

    async def grade(self, request: pb.GradeRequest) -> pb.GradeResponse:
        self.asked.append(request)
        return self._says(request)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def judges(self, patience_seconds: float = 60, *, evaluation: bool = False) -> Judges:
        line, reporter = cast(AgentLink, self), cast(Reporter, self)
        return Judges(
            line,
            reporter,
            name="judge",
            patience_seconds=patience_seconds,
            evaluation=evaluation,
        )


def of_length(request: pb.GradeRequest) -> pb.GradeResponse:
    grades = {i: pb.Grade(reward=len(each.sample)) for i, each in enumerate(request.answers)}
    return pb.GradeResponse(grades=grades)


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "backoff", lambda: Backoff(shortest=0.0))


async def test_equal_answers_are_asked_about_once_and_in_parts() -> None:
    platform = Platform(of_length)
    answers = [("a" * (number % 20), b"{}") for number in range(100)]
    grades = await platform.judges().grades(answers)
    assert [grade.reward for grade in grades] == [number % 20 for number in range(100)]
    assert [len(request.answers) for request in platform.asked] == [16, 4]
    assert len({request.batch for request in platform.asked}) == 1


async def test_no_part_is_too_large_to_send() -> None:
    platform = Platform(of_length)
    item = b'{"a": "' + b"x" * 2**20 + b'"}'
    await platform.judges().grades([(str(number), item) for number in range(5)])
    assert [len(request.answers) for request in platform.asked] == [1] * 5


async def test_what_is_pending_is_asked_for_again() -> None:
    says: list[Any] = [
        pb.GradeResponse(pending="It is loading."),
        pb.GradeResponse(grades={1: pb.Grade(reward=1)}, pending="It is slow."),
        pb.GradeResponse(grades={0: pb.Grade(reward=0.5, fault="No number.")}),
    ]
    platform = Platform(lambda request: says.pop(0))
    one, other = await platform.judges().grades([("x", b"{}"), ("y", b"{}")])
    assert (one.reward, one.fault, other.reward) == (0.5, "No number.", 1)
    assert [[each.sample for each in one.answers] for one in platform.asked] == [
        ["x", "y"],
        ["x", "y"],
        ["x"],
    ]
    assert platform.warnings == ["The grader 'judge' is not available yet: It is loading."]


async def test_nothing_is_waited_for_in_vain() -> None:
    def reject(request: pb.GradeRequest) -> pb.GradeResponse:
        raise Rejected("An item must be a JSON object.")

    for says, patience_seconds in (
        (lambda _: pb.GradeResponse(pending="No GPU is free."), 0.0),
        (lambda _: pb.GradeResponse(refused="No GPU is free."), 60.0),
        (reject, 60.0),
    ):
        platform = Platform(says)
        with pytest.raises(Failure) as failed:
            await platform.judges(patience_seconds).grades([("x", b"{}")])
        assert failed.value.code == "grader_unavailable"
        assert failed.value.param == "method.reinforcement.grader"
        assert failed.value.message.startswith("The grader 'judge' could not be reached: ")
        assert len(platform.asked) == 1
