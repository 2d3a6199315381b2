"""The python graders of a job, run beside its trainer, in sandboxes of this machine."""

from collections.abc import Mapping
from functools import cache

from windlass.graders import (
    Fault,
    Grade,
    Grader,
    Subject,
    Ungradable,
    grade,
    models_asked,
    programs,
)
from windlass.sandbox import NoSandbox, Programs, Sandbox, Unfit, make_sandbox
from windlass_agent.runner.grading.judges import PARAM
from windlass_agent.runner.protocol.outcome import Failure


def runs_here(grader: Grader) -> bool:
    """Returns True if the grader has Python programs that run beside the trainer."""
    return bool(programs(grader)) and not models_asked(grader)


def check_sandbox(grader: Grader, *, at: str = PARAM) -> None:
    """Raises Failure if no sandbox is available for the programs of the grader at `at`."""
    if runs_here(grader):
        try:
            _sandbox(grader.name)
        except Failure as failure:
            failure.param = at
            raise


class GraderPrograms:
    """The programs of a grader. Kept, so that each is loaded once."""

    def __init__(self, grader: Grader) -> None:
        self._grader = grader
        self._name = grader.name
        self._programs = Programs(_sandbox(grader.name), grader) if runs_here(grader) else None

    def grade(self, subject: Subject) -> Grade:
        """Returns the grade of an answer; raises Failure if a program keeps hanging or dying."""
        return grade(self._grader, subject, self._scores(subject))

    def _scores(self, subject: Subject) -> Mapping[str, float | Ungradable]:
        if self._programs is None:
            return {}
        try:
            return self._programs.scores(subject)
        except Unfit as error:
            raise Failure(
                "grader_failed", _sentence(self._name, str(error)), param=PARAM
            ) from error

    def close(self) -> None:
        """Ends the programs."""
        if self._programs is not None:
            self._programs.close()

    def check(self, grades: list[Grade]) -> None:
        """Raises Failure if programs failed for every answer of a step."""
        faults = [each.faults.get(Fault.PYTHON_RUNTIME) for each in grades]
        if self._programs is not None and faults and all(faults):
            raise Failure("grader_failed", _sentence(self._name, str(faults[0])), param=PARAM)


@cache
def _sandbox(name: str) -> Sandbox:
    try:
        return make_sandbox()
    except NoSandbox as error:
        raise Failure(
            "grader_unavailable",
            f"The grader {name!r} runs Python, but there is no sandbox where the job runs: "
            f"{error}.",
            param=PARAM,
        ) from error


def _sentence(name: str, why: str) -> str:
    return f"The grader {name!r} fails: {why}"
