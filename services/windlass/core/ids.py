"""Identifiers: a prefix that says the kind, then randomness nobody can guess."""

import re
import secrets
import string

_BASE62 = string.ascii_letters + string.digits
_BASE36 = string.ascii_lowercase + string.digits


def new_id(prefix: str, *, length: int = 24) -> str:
    """`<prefix><length letters and digits>`, from the system's random source."""
    return prefix + "".join(secrets.choice(_BASE62) for _ in range(length))


def new_name(prefix: str, *, length: int = 20) -> str:
    """Like `new_id` in lower case alone, so that it may name a Kubernetes object."""
    return prefix + "".join(secrets.choice(_BASE36) for _ in range(length))


def is_id(value: str, prefix: str) -> bool:
    """Whether `value` has the shape of an id of this kind; says nothing of existence."""
    return re.fullmatch(re.escape(prefix) + r"[A-Za-z0-9]{8,64}", value) is not None
