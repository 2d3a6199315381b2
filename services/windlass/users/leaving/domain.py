"""Erasures as records, and their refusals; pure."""

from dataclasses import dataclass, field

from windlass.core.errors import FailedPrecondition, NotFound


@dataclass(frozen=True, slots=True)
class ErasureStep:
    """Progress of one service."""

    service: str
    state: str
    rows: dict[str, int]
    objects: int
    bytes: int
    message: str


@dataclass(frozen=True, slots=True)
class Erasure:
    """Departure of a project, or of a whole organization."""

    id: str
    organization_id: str
    project_id: str
    state: str
    asked_by: str
    asked_at: int
    erase_at: int
    finished_at: int
    report: str
    held: bool = False
    steps: list[ErasureStep] = field(default_factory=list)


def unknown(erasure_id: str) -> NotFound:
    """The error of an erasure that is not there, or not for the caller."""
    return NotFound(f"No erasure {erasure_id!r}.", param="erasure_id")


def no_undo() -> FailedPrecondition:
    """The error of an undo that comes too late, or of what nobody has deleted."""
    return FailedPrecondition(
        "Nothing is scheduled that could be undone: it is live, or its erasure has begun.",
        reason="not_scheduled",
    )


def require_title(title: str, given: str) -> None:
    """Raises FailedPrecondition unless a deletion is confirmed by the title of what it deletes."""
    if given != title:
        raise FailedPrecondition(
            "Confirm by the title of what you delete, exactly as it is.", reason="not_confirmed"
        )
