"""Conversion of runners' reports to records of the domain."""

import math
from collections.abc import Mapping

from windlass.api.runner.v1 import runner_pb2
from windlass.core.errors import InvalidArgument
from windlass.jobs.domain.evaluation import EvaluationResult, EvaluationScore
from windlass.jobs.domain.job import JobFailure, Level
from windlass.jobs.domain.reports import (
    MAX_NUMBER,
    MAX_STEP,
    MAX_TOKENS,
    NAME_LENGTH,
    RunEvent,
    StepMetrics,
)
from windlass.jobs.domain.transitions import Finish
from windlass.jobs_api.evaluation import MAX_EXAMPLES

_OUTCOMES = {
    runner_pb2.OUTCOME_SUCCEEDED: "succeeded",
    runner_pb2.OUTCOME_FAILED: "failed",
    runner_pb2.OUTCOME_STOPPED: "stopped",
}


def run_event(message: runner_pb2.RunEvent) -> RunEvent:
    """The event in a runner's report; raises InvalidArgument for an evaluation that is none."""
    metrics = message.metrics if message.HasField("metrics") else None
    return RunEvent(
        seq=message.seq,
        at_ms=_within(message.at_ms, MAX_NUMBER),
        level=Level(message.level) if message.level in (1, 2, 3) else Level.INFO,
        message=message.message,
        phase=message.phase,
        metrics=None
        if metrics is None
        else StepMetrics(
            step=_within(metrics.step, MAX_STEP),
            total_steps=_within(metrics.total_steps, MAX_STEP),
            epoch=metrics.epoch,
            values=measured(metrics.values),
            trained_tokens=_within(metrics.trained_tokens, MAX_TOKENS),
        ),
        evaluation=_evaluation(message.evaluation) if message.HasField("evaluation") else None,
    )


def measured(values: Mapping[str, float]) -> dict[str, float]:
    """Numbers by names that can be stored."""
    return {_bounded(name, NAME_LENGTH): value for name, value in values.items()}


def _evaluation(message: runner_pb2.EvaluationResult) -> EvaluationResult:
    compared = (message.wins, message.ties, message.losses)
    scores = (message.base, message.fine_tuned)
    sound = (
        0 < message.examples <= MAX_EXAMPLES
        and min(compared) >= 0
        and sum(compared) == message.examples
        and all(0 <= score.ungraded <= message.examples for score in scores)
        and all(math.isfinite(score.mean_reward) for score in scores)
        and all(abs(score.mean_reward) <= MAX_NUMBER for score in scores)
    )
    if not sound:
        raise InvalidArgument("The evaluation's numbers contradict each other.", param="events")
    return EvaluationResult(
        examples=message.examples,
        base=_score(message.base),
        fine_tuned=_score(message.fine_tuned),
        wins=message.wins,
        ties=message.ties,
        losses=message.losses,
    )


def _score(message: runner_pb2.EvaluationScore) -> EvaluationScore:
    return EvaluationScore(mean_reward=message.mean_reward, ungraded=message.ungraded)


def finish(message: runner_pb2.FinishRequest) -> Finish | None:
    """The end of an attempt; None when the message does not say."""
    outcome = _OUTCOMES.get(message.outcome)
    if outcome is None:
        return None
    failure = JobFailure(
        code=_bounded(message.error_code, 64) or "training_failed",
        message=_bounded(message.error_message, 4000) or "The training failed.",
        param=_bounded(message.error_param, 128),
    )
    return Finish(
        outcome=outcome,
        failure=failure if outcome == "failed" else None,
        trained_tokens=_within(message.trained_tokens, MAX_TOKENS),
    )


def _bounded(text: str, most: int) -> str:
    return text.replace("\0", "")[:most]


def _within(amount: int, most: int) -> int:
    return min(max(0, amount), most)
