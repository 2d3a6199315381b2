"""OpenAI's graders: what one is, and what it makes of a model's answer. Pure.

What a grader asks another model is told by `questions`, and what was answered is handed to
`grade`: whoever grades brings the models along.
"""

from windlass.graders.definitions import Grader, parse, to_document
from windlass.graders.faults import Fault, InvalidGrader, Ungradable
from windlass.graders.grading import Grade, grade, missing_field, models_asked, questions
from windlass.graders.questions import Question
from windlass.graders.subject import Subject

__all__ = [
    "Fault",
    "Grade",
    "Grader",
    "InvalidGrader",
    "Question",
    "Subject",
    "Ungradable",
    "grade",
    "missing_field",
    "models_asked",
    "parse",
    "questions",
    "to_document",
]
