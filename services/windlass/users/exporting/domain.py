"""Exports as records, and their refusals; pure."""

from dataclasses import dataclass, field

from windlass.core.errors import FailedPrecondition, NotFound
from windlass.core.objects.port import Sha256


@dataclass(frozen=True, slots=True)
class ServiceExport:
    """Progress of one service."""

    service: str
    state: str
    rows: dict[str, int]
    objects: int
    bytes: int
    message: str


@dataclass(frozen=True, slots=True)
class TenantExport:
    """A copy of what an organization has; with a person, of what it knows of them."""

    id: str
    organization_id: str
    user_id: str
    state: str
    asked_by: str
    asked_at: int
    finished_at: int
    expires_at: int
    bytes: int
    steps: list[ServiceExport] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ExportPart:
    """One file of an archive, and where it lies."""

    name: str
    object_key: str
    rows: int
    bytes: int
    sha256: Sha256


def unknown_export(export_id: str) -> NotFound:
    """The error of an export that is not there, is over, or is not for the caller."""
    return NotFound(f"No export {export_id!r}.", param="export_id")


def leaves_already() -> FailedPrecondition:
    """The error of an export of what is being erased."""
    return FailedPrecondition(
        "The organization, or a project of it, is being erased.", reason="being_erased"
    )


def is_collected_still() -> FailedPrecondition:
    """The error of a download that comes too early."""
    return FailedPrecondition(
        "The export is still collected: ask again once its state is ready.", reason="not_ready"
    )
