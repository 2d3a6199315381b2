"""Requests with the fields that the gateway adds (ADR 36)."""

from typing import TypeVar, cast

import msgspec

_FIELDS = [("cache_salt", str | None, None), ("priority", int | None, None)]
S = TypeVar("S", bound=msgspec.Struct)


def salted(base: type[S]) -> type[S]:
    """The type of requests that also say whose prompts they share, and what comes first."""
    made = msgspec.defstruct(
        f"Salted{base.__name__}", _FIELDS, bases=(base,), kw_only=True, forbid_unknown_fields=True
    )
    return cast("type[S]", made)
