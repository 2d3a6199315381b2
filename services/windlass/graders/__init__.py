"""OpenAI's graders: what one is, and what it makes of a model's answer. Pure.

`questions` returns what a grader asks another model, and `programs` what it runs; the caller has
both answered, by models and a sandbox of its own, and hands the answers to `grade`.

May import `windlass.datasets` and the kernel.
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
