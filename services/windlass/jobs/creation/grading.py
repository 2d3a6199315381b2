"""Graders of a request, and the evaluation by one of them. Pure."""

from typing import Any

import msgspec

from windlass import graders
from windlass.backends import methods
from windlass.core import misfits
from windlass.core.errors import InvalidArgument
from windlass.graders import Grader
from windlass.jobs.domain.evaluation import Evaluation
from windlass.jobs_api.evaluation import AskedEvaluation
from windlass.jobs_api.request import EVALUATION

# What `windlass.datasets` makes of an example to be answered and graded.
READ = "evaluation"
_AT = f"{EVALUATION}.grader"


def decoded_grader(data: bytes, *, at: str) -> Any:
    """The grader's document at a path of the request, None for none; raises InvalidArgument."""
    if not data:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"{at} is not valid JSON.", param=at) from error


def parsed_grader(document: Any, *, at: str, runs_python: bool) -> Grader:
    """The grader of a document; raises InvalidArgument that names the field."""
    try:
        found = graders.parse(document, at=at)
    except graders.InvalidGrader as error:
        message = f"{error.field}: {misfits.words(error.message)}."
        raise InvalidArgument(message, param=error.field) from error
    if graders.programs(found) and not runs_python:
        raise InvalidArgument(
            "Python graders are disabled in this installation (graders.python).",
            param=graders.type_field(found, at),
        )
    return found


def evaluating(asked: AskedEvaluation | None, *, method: str, runs_python: bool) -> Grader | None:
    """The evaluation's own grader; None for that of a method that learns from rewards.

    Raises InvalidArgument for an evaluation without a grader, or of a model that writes nothing.
    """
    if asked is None:
        return None
    if method in methods.SCORING:
        raise InvalidArgument(
            f"{EVALUATION} is not possible: a reward model writes no answers.", param=EVALUATION
        )
    document = decoded_grader(bytes(asked.grader), at=_AT)
    if document is None:
        if method in methods.GRADED:
            return None
        raise InvalidArgument(f"{_AT} is required: it grades the answers.", param=_AT)
    return parsed_grader(document, at=_AT, runs_python=runs_python)


def evaluation_of(asked: AskedEvaluation | None, grader: Grader | None) -> Evaluation | None:
    """The evaluation that a job keeps."""
    if asked is None or grader is None:
        return None
    return Evaluation(
        file=asked.file,
        grader=graders.to_document(grader),
        max_examples=asked.max_examples,
        max_completion_tokens=asked.max_completion_tokens,
        temperature=asked.temperature,
    )
