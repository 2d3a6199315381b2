"""One entry of the catalogue."""

from dataclasses import dataclass

from windlass.core.errors import AppError


@dataclass(frozen=True, slots=True)
class ErrorReason:
    """The meaning of a reason with its remedy, and the errors that carry it."""

    meaning: str
    errors: tuple[type[AppError], ...]
    # Statuses of the answers that the gateway, or an engine behind it, makes without such an error.
    statuses: tuple[int, ...]


def reason(meaning: str, *of: type[AppError] | int) -> ErrorReason:
    """Returns an entry of errors and of statuses."""
    statuses = tuple(one for one in of if isinstance(one, int))
    return ErrorReason(meaning, tuple(one for one in of if not isinstance(one, int)), statuses)
