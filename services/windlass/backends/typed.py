"""Documents from outside, decoded into types."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from windlass.backends.backend import InvalidConfig
from windlass.core import misfits

T = TypeVar("T")


def decode(document: Mapping[str, Any], to: type[T], *, at: str) -> T:
    """Decodes a document found at path `at`; raises InvalidConfig naming the field at fault."""
    try:
        return msgspec.convert(dict(document), type=to)
    except msgspec.ValidationError as error:
        raise InvalidConfig(*misfits.place(error, at=at, of=to)) from None
