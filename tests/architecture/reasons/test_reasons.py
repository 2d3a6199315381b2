"""Every reason that an error of the code carries is an entry of the catalogue, with its status."""

from fnmatch import filter as matching

from tests.architecture.reasons import uses as code
from tests.architecture.reasons.uses import Use
from tools.generate_errors_reference import statuses

from windlass.core import errors
from windlass.core.reasons import JOB_ENDS, REASONS
from windlass.jobs.domain.transitions import error_code

# Nothing of ours raises it: a peer's status becomes it.
MADE_OF_A_STATUS = {("timeout", "DeadlineExceeded")}
# Of a runner that does not say why.
UNSAID = {"training_failed"}


def test_every_reason_is_an_entry_with_its_error_or_status() -> None:
    uses = code.uses()
    assert len(uses) > 400
    assert [use for use in uses if not entries(use)] == []


def test_every_entry_is_used_with_each_of_its_errors_and_statuses() -> None:
    used = {(name, use.kind) for use in code.uses() for name in entries(use)}
    listed = {
        (name, kind)
        for name, reason in REASONS.items()
        for kind in (*(one.__name__ for one in reason.errors), *map(str, reason.statuses))
    }
    assert listed - used - MADE_OF_A_STATUS == set()


def entries(use: Use) -> list[str]:
    """The entries that a use may mean: several where a part of the reason is filled in."""
    reason = use.reason or getattr(errors, use.kind).default_reason
    return [name for name in matching(REASONS, reason.replace("…", "*")) if carries(name, use.kind)]


def carries(name: str, kind: str) -> bool:
    """Returns True if an entry is of an error's class, or of a status."""
    if kind.isdigit():
        return int(kind) in statuses(name, REASONS[name])
    return kind == "…" or kind in {one.__name__ for one in REASONS[name].errors}


def test_every_end_of_a_job_is_an_entry_and_used() -> None:
    ends = {code: place for said, place in code.job_ends().items() for code in codes(said)}
    known = JOB_ENDS.keys() | REASONS.keys()
    assert {code: place for code, place in ends.items() if code not in known} == {}
    assert JOB_ENDS.keys() - ends.keys() == UNSAID


def codes(said: str) -> list[str]:
    """The codes that an end may have, whose code or reason is written so."""
    return matching(JOB_ENDS, said.replace("…", "*")) if "…" in said else [error_code(said)]


def test_every_entry_says_what_it_means_in_a_sentence() -> None:
    meanings = [reason.meaning for reason in REASONS.values()] + list(JOB_ENDS.values())
    assert [said for said in meanings if len(said) < 20 or not said.endswith(".")] == []
