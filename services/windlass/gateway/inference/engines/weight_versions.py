"""Weights of an engine: the version that a request demands, and what its answer says of them."""

import re
from collections.abc import Mapping

from windlass.gateway.asgi import Headers
from windlass.gateway.errors import HttpError
from windlass.inference_api.routes import STEPS, WEIGHT_VERSION

HEADER = WEIGHT_VERSION.encode()
STEPS_HEADER = STEPS.encode()
_NUMBER = re.compile(rb"\d{1,16}")
_RANGE = re.compile(rb"\d{1,16}-(\d{1,16})?")


def demanded_version(headers: Mapping[bytes, bytes]) -> bytes:
    """The version that a request demands, empty for any; raises HttpError 400 for no number."""
    told = headers.get(HEADER)
    if told is None:
        return b""
    if not _NUMBER.fullmatch(told):
        raise HttpError(
            400,
            f"{WEIGHT_VERSION} must be the number of a version",
            code="invalid_value",
            param=WEIGHT_VERSION,
        )
    return told


def demand_line(headers: Mapping[bytes, bytes]) -> bytes:
    """The line of a request's head that demands a version of an engine; empty for any."""
    demanded = demanded_version(headers)
    return b"%b: %b\r\n" % (HEADER, demanded) if demanded else b""


def named_version(headers: Mapping[bytes, bytes], told: bytes) -> Headers:
    """The header of an answer whose engine named a version; raises HttpError 409 for another.

    An engine that names none meets no demand, since nobody could tell what it answered with.
    """
    demanded = demanded_version(headers)
    named = told if _NUMBER.fullmatch(told) else b""
    if demanded and (not named or int(named) != int(demanded)):
        what = f"are of version {named.decode()}" if named else "have no version"
        raise HttpError(
            409,
            f"The weights that answer {what}.",
            code="weight_version_mismatch",
            param=WEIGHT_VERSION,
        )
    return [(HEADER, named)] if named else []


def named_steps(told: bytes) -> Headers:
    """The header of an answer of an engine that learns; a stream's last step comes at its end."""
    return [(STEPS_HEADER, told)] if _RANGE.fullmatch(told) else []
