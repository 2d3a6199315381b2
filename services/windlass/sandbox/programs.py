"""The programs of a whole grader, each by its name."""

from collections import Counter

from windlass.graders import Fault, Grader, Subject, Ungradable, programs
from windlass.sandbox.bubblewrap import Sandbox
from windlass.sandbox.limits import SandboxLimits
from windlass.sandbox.program import Program

# In a row, after which the next answers would not fare better.
_MAX_ENDS = 3


class Unfit(Exception):
    """A program that hangs or dies again and again."""


class Programs:
    """Runs the python graders among a grader's parts."""

    def __init__(
        self, sandbox: Sandbox, grader: Grader, limits: SandboxLimits | None = None
    ) -> None:
        self._programs = {
            name: Program(sandbox, part.source, limits) for name, part in programs(grader).items()
        }
        self._ends: Counter[str] = Counter()

    def close(self) -> None:
        """Ends the programs and the calls that wait for them."""
        for program in self._programs.values():
            program.close()

    def scores(self, subject: Subject) -> dict[str, float | Ungradable]:
        """The score of each, or why it has none; raises Unfit."""
        return {name: self._score(name, subject) for name in self._programs}

    def _score(self, name: str, subject: Subject) -> float | Ungradable:
        try:
            score = self._programs[name].grade(subject.sample, subject.item)
        except Ungradable as error:
            if error.fault is not Fault.PYTHON_SERVER:
                self._ends[name] = 0
                return error
            self._ends[name] += 1
            if self._ends[name] >= _MAX_ENDS:
                raise Unfit(error.message) from error
            return error
        self._ends[name] = 0
        return score
