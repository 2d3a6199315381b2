"""OpenAI's graders: what one is, and what it makes of a model's answer. Pure.

What a grader asks another model is told by `questions`, and what it runs by `programs`; what comes
of both is handed to `grade`: whoever grades brings models and a sandbox along.
"""

from windlass.graders.definitions import Grader, parse, to_document
from windlass.graders.faults import Fault, InvalidGrader, Ungradable
from windlass.graders.grading import (
    Grade,
    check_item,
    grade,
    models_asked,
    programs,
    questions,
    type_field,
)
from windlass.graders.questions import JudgeQuestion
from windlass.graders.subject import Subject

__all__ = [
    "Fault",
    "Grade",
    "Grader",
    "InvalidGrader",
    "JudgeQuestion",
    "Subject",
    "Ungradable",
    "check_item",
    "grade",
    "models_asked",
    "parse",
    "programs",
    "questions",
    "to_document",
    "type_field",
]
