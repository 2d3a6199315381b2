"""Identifiers: a prefix that says the kind, then randomness nobody can guess."""

import os
import re
import string

_BASE62 = (string.ascii_letters + string.digits).encode()
_BASE36 = (string.ascii_lowercase + string.digits).encode()

# In the place of a project's id: what is for all projects. No project has it.
EVERYONE = "everyone"

# What ids of people's sessions begin with; those of keys do not.
SESSION_PREFIX = "sess_"

# Safe in a path, a log and a name: no separators, no leading dot or dash.
IDENTIFIER_LENGTH = 128
_IDENTIFIER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{IDENTIFIER_LENGTH - 1}}}")


def is_identifier(value: str) -> bool:
    """Returns True if `value` is safe as the name of a row, folder or process."""
    return _IDENTIFIER.fullmatch(value) is not None


def new_id(prefix: str, *, length: int = 24) -> str:
    """`<prefix><length letters and digits>`, from the system's random source."""
    return prefix + _random(_BASE62, length)


def new_name(prefix: str, *, length: int = 20) -> str:
    """Like `new_id` in lower case alone, so that it may name a Kubernetes object."""
    return prefix + _random(_BASE36, length)


def _random(alphabet: bytes, length: int) -> str:
    table = alphabet * (256 // len(alphabet))
    # Bytes beyond a multiple of the alphabet would favor its first letters.
    unused = bytes(range(len(table), 256))
    picked = b""
    while len(picked) < length:
        picked += os.urandom(2 * length).translate(table + unused, unused)
    return picked[:length].decode()


def is_id(value: str, prefix: str) -> bool:
    """Returns True if `value` has the shape of an id of this kind; says nothing of existence."""
    return re.fullmatch(re.escape(prefix) + r"[A-Za-z0-9]{8,64}", value) is not None
