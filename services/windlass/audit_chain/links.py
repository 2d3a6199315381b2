"""The link between two audit events: a hash over the event and the hash of the one before it."""

import json
from collections.abc import Mapping
from hashlib import sha256

# What the first event of an organization follows.
GENESIS = bytes(32)
# Fields that can be erased: a hash covers their digest alone.
DETAILS = ("before", "after", "details_salt")
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def standard(said: Mapping[str, object]) -> bytes:
    """Canonical JSON by the standard library, which a client has alone."""
    return _ENCODE(said).encode()


try:
    import orjson
except ImportError:
    _write = standard
else:

    def _write(said: Mapping[str, object]) -> bytes:
        """The same four times as fast."""
        return orjson.dumps(said, option=orjson.OPT_SORT_KEYS)


def canonical(event: Mapping[str, object]) -> bytes:
    """JSON as RFC 8785 has it, without the fields that are empty.

    So a field that a later release adds leaves the hashes of events without it as they are.
    Values are texts and integers below 2^53.
    """
    return _write({name: value for name, value in event.items() if value})


def link(previous: bytes, event: Mapping[str, object]) -> bytes:
    """SHA-256 of the predecessor's hash and the event's canonical JSON; `event` has no hash.

    Without its details, for which `details_digest` stands.
    """
    hashed = {name: value for name, value in event.items() if name not in DETAILS}
    return sha256(previous + canonical(hashed)).digest()


def details_digest(event: Mapping[str, object]) -> str:
    """SHA-256 in hex of the canonical JSON of an event's details and salt; empty without any."""
    details = {name: event.get(name) for name in DETAILS}
    return sha256(canonical(details)).hexdigest() if any(details.values()) else ""
