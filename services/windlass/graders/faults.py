"""Errors of graders and of their inputs."""

from enum import StrEnum


class InvalidGrader(ValueError):
    """A grader that cannot grade anything; `field` is the path of the field at fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class Fault(StrEnum):
    """Reasons of a missing grade, by OpenAI's names."""

    FORMULA = "formula_parse_error"
    INVALID_VARIABLE = "invalid_variable_error"
    MODEL_PARSE = "model_grader_parse_error"
    MODEL_REFUSAL = "model_grader_refusal_error"
    MODEL_SERVER = "model_grader_server_error"
    OTHER = "other_error"
    PYTHON_RUNTIME = "python_grader_runtime_error"
    PYTHON_SERVER = "python_grader_server_error"
    SAMPLE_PARSE = "sample_parse_error"


class Ungradable(Exception):
    """An answer to which a grader can give no score."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message
