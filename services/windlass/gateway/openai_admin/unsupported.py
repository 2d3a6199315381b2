"""Refusals of what OpenAI's administration API has and this installation has not."""

from windlass.core.errors import InvalidArgument


def require_unset(**values: object) -> None:
    """Raises InvalidArgument that names the first value that is set."""
    for name, value in values.items():
        if value is not None:
            raise InvalidArgument(
                f"{name} is not supported by this installation; leave it out.",
                reason="unsupported_parameter",
                param=name,
            )


def require_unset_beside(other: str, **values: object) -> None:
    """Raises InvalidArgument that names the first value that is set, though `other` is too."""
    for name, value in values.items():
        if value is not None:
            raise InvalidArgument(f"{name} and {other} do not go together.", param=name)
