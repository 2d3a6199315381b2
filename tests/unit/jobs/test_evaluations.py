"""What a runner says of an evaluation: bounded, taken once, and shown in the job object."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.jobs.test_machine import new_job

from windlass.api.runner.v1 import runner_pb2
from windlass.core.errors import InvalidArgument
from windlass.gateway.openai.rendering import render_job
from windlass.jobs.domain.evaluation import Evaluation, EvaluationResult, EvaluationScore
from windlass.jobs.domain.job import JobState
from windlass.jobs.domain.reports import RunEvent, reported
from windlass.jobs.transport import messages
from windlass.jobs.transport.runner_messages import run_event

ASKED = Evaluation(
    file="file-2", grader={"type": "string_check"}, max_examples=10, max_completion_tokens=32
)
RESULT = EvaluationResult(
    examples=4,
    base=EvaluationScore(mean_reward=0.25, ungraded=1),
    fine_tuned=EvaluationScore(mean_reward=0.75),
    wins=2,
    ties=1,
    losses=1,
)


def result(**fields: Any) -> runner_pb2.RunEvent:
    given: dict[str, Any] = {
        "examples": 4, "wins": 2, "ties": 1, "losses": 1,
        "base": {"mean_reward": 0.25, "ungraded": 1}, "fine_tuned": {"mean_reward": 0.75},
    }  # fmt: skip
    told = runner_pb2.EvaluationResult(**given | fields)
    return runner_pb2.RunEvent(seq=1, message="Evaluated.", evaluation=told)


def test_a_result_is_read() -> None:
    assert run_event(result()).evaluation == RESULT
    assert run_event(runner_pb2.RunEvent(seq=1)).evaluation is None


@pytest.mark.parametrize(
    "fields",
    [
        {"examples": 0, "wins": 0, "ties": 0, "losses": 0},
        {"examples": 2000, "wins": 2000, "ties": 0, "losses": 0},
        {"wins": 3},
        {"wins": -1, "ties": 4},
        {"base": {"mean_reward": float("nan")}},
        {"fine_tuned": {"mean_reward": float("inf")}},
        {"fine_tuned": {"mean_reward": 2.0**60}},
        {"base": {"mean_reward": 0.5, "ungraded": 5}},
        {"base": {"mean_reward": 0.5, "ungraded": -1}},
    ],
)
def test_a_result_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        run_event(result(**fields))


def test_the_first_result_of_a_job_that_asked_for_one_stands() -> None:
    job = replace(new_job(), state=JobState.RUNNING, cluster_id="east", attempt=1)
    event = RunEvent(seq=1, at_ms=5, message="Evaluated.", evaluation=RESULT)
    assert reported(job, [event], 6).job.evaluation is None
    job = replace(job, spec=replace(job.spec, evaluation=ASKED))
    evaluated = reported(job, [event], 6)
    assert evaluated.job.evaluation == RESULT
    assert [told.message for told in evaluated.events] == ["Evaluated."]
    other = replace(event, seq=2, evaluation=replace(RESULT, wins=3, losses=0))
    assert reported(evaluated.job, [other], 7).job.evaluation == RESULT


def test_the_job_object_has_what_was_asked_for_and_what_came_of_it() -> None:
    job = new_job()
    assert render_job(messages.job(job))["windlass"]["evaluation"] is None
    job = replace(job, spec=replace(job.spec, evaluation=ASKED))
    shown = {
        "file": "file-2",
        "grader": {"type": "string_check"},
        "max_examples": 10,
        "max_completion_tokens": 32,
        "temperature": 0.0,
        "result": None,
    }
    assert render_job(messages.job(job))["windlass"]["evaluation"] == shown
    done = render_job(messages.job(replace(job, evaluation=RESULT)))["windlass"]["evaluation"]
    assert done == shown | {
        "result": {
            "examples": 4,
            "base": {"mean_reward": 0.25, "ungraded": 1},
            "fine_tuned": {"mean_reward": 0.75, "ungraded": 0},
            "wins": 2,
            "ties": 1,
            "losses": 1,
        }
    }
