"""Grading of an answer: its reward."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from windlass.datasets import DatasetError, Reason
from windlass.graders.definitions import (
    Grader,
    LabelModel,
    Multi,
    Part,
    Python,
    ScoreModel,
    StringCheck,
    TextSimilarity,
    item_variables,
    parts_of,
)
from windlass.graders.faults import Fault, Ungradable
from windlass.graders.formula import compile_formula
from windlass.graders.questions import JudgeQuestion, question, score_of
from windlass.graders.similarity import similarity
from windlass.graders.subject import Subject
from windlass.graders.templates import compile_template


@dataclass(frozen=True)
class Grade:
    """A reward, the score of every grader by name, and what went wrong.

    The reward is 0 where anything did.
    """

    reward: float
    scores: Mapping[str, float]
    faults: Mapping[Fault, str]


def check_item(grader: Grader, item: str, line: int) -> None:
    """Raises DatasetError for an item, as JSON, without a field that the grader refers to."""
    subject = Subject("", msgspec.json.decode(item))
    for variable in item_variables(grader):
        try:
            variable.look_up(subject)
        except Ungradable:
            raise DatasetError(
                f"The grader refers to {variable.written}, which the example does not have.",
                reason=Reason.INVALID_EXAMPLE,
                line=line,
                param=variable.written,
            ) from None


def models_asked(grader: Grader) -> dict[str, str]:
    """Returns the models that it has to ask, by the path of the field that names each."""
    return {
        f"graders.{name}.model" if isinstance(grader, Multi) else "model": part.model
        for name, part in parts_of(grader).items()
        if isinstance(part, ScoreModel | LabelModel)
    }


def programs(grader: Grader) -> dict[str, Python]:
    """The programs to run before `grade`, by the name of the grader."""
    parts = parts_of(grader).items()
    return {name: part for name, part in parts if isinstance(part, Python)}


def type_field(grader: Grader, at: str) -> str:
    """Returns the path of the field by which the first python grader is one."""
    if not isinstance(grader, Multi):
        return f"{at}.type"
    return f"{at}.graders.{next(iter(programs(grader)), '')}.type"


def questions(grader: Grader, subject: Subject) -> dict[str, JudgeQuestion]:
    """The questions for models to answer before `grade`, by the name of the grader that asks.

    One whose variables are missing asks nothing: `grade` says so.
    """
    asked: dict[str, JudgeQuestion] = {}
    for name, part in parts_of(grader).items():
        if isinstance(part, ScoreModel | LabelModel):
            try:
                asked[name] = question(part, subject)
            except Ungradable:
                continue
    return asked


def grade(
    grader: Grader,
    subject: Subject,
    answers: Mapping[str, str | float | Ungradable] | None = None,
) -> Grade:
    """Grades a subject, given what answered its questions and what its programs returned."""
    scores: dict[str, float] = {}
    faults: dict[Fault, str] = {}
    for name, part in parts_of(grader).items():
        try:
            scores[name] = _score(part, subject, (answers or {}).get(name))
        except Ungradable as error:
            faults[error.fault] = error.message
    reward = 0.0
    if not faults:
        try:
            reward = _reward(grader, scores)
        except Ungradable as error:
            faults[error.fault] = error.message
    return Grade(reward, scores, faults)


def _reward(grader: Grader, scores: Mapping[str, float]) -> float:
    if isinstance(grader, Multi):
        return compile_formula(grader.calculate_output, frozenset(scores)).value(scores)
    return scores[grader.name]


def _score(part: Part, subject: Subject, answer: str | float | Ungradable | None) -> float:
    if isinstance(answer, Ungradable):
        raise answer
    match part:
        case StringCheck():
            return float(_holds(part, *_texts(part, subject)))
        case TextSimilarity():
            return similarity(part.evaluation_metric, *_texts(part, subject))
        case Python():
            if isinstance(answer, float):
                return answer
            raise Ungradable(Fault.PYTHON_SERVER, "start: It was not run.")
        case ScoreModel() | LabelModel():
            if isinstance(answer, str):
                return score_of(answer, part)
            # What kept it from being asked says so itself.
            question(part, subject)
            raise Ungradable(Fault.OTHER, f"The model {part.model} was not asked.")


def _texts(part: StringCheck | TextSimilarity, subject: Subject) -> tuple[str, str]:
    return (
        compile_template(part.input).fill(subject),
        compile_template(part.reference).fill(subject),
    )


def _holds(part: StringCheck, text: str, reference: str) -> bool:
    match part.operation:
        case "eq":
            return text == reference
        case "ne":
            return text != reference
        case "like":
            return reference in text
        case "ilike":
            return reference.casefold() in text.casefold()
