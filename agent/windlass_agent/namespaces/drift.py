"""Detection of drift between an object and its applied manifest. Pure."""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from windlass.kubernetes.labels import PREFIX
from windlass.kubernetes.quantities import quantity

Object = dict[str, Any]
# A digest of what was applied: it tells what the object lacks and what it has too much.
APPLIED = PREFIX + "applied"
# Kueue may write these another way: `4000m` as `4`.
_QUANTITIES = frozenset({"nominalQuota", "borrowingLimit", "lendingLimit", "weight"})


def signed(body: Object) -> Object:
    """The manifest with its own digest noted in it."""
    text = json.dumps(body, sort_keys=True).encode()
    metadata = body["metadata"]
    annotations = metadata.get("annotations", {}) | {
        APPLIED: blake2b(text, digest_size=12).hexdigest()
    }
    return body | {"metadata": metadata | {"annotations": annotations}}


def covers(actual: Any, wanted: Any, name: str = "") -> bool:
    """Returns True if `actual` has all of `wanted`; its lists have no further items."""
    if isinstance(wanted, Mapping):
        return isinstance(actual, Mapping) and all(
            # The API server leaves out a list that is empty.
            covers(actual.get(key, [] if value == [] else None), value, key)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(actual, list)
            and len(actual) == len(wanted)
            and all(covers(one, other) for one, other in zip(actual, wanted, strict=True))
        )
    if name in _QUANTITIES:
        return _same_quantity(actual, wanted)
    return bool(actual == wanted)


def _same_quantity(actual: Any, wanted: Any) -> bool:
    try:
        return quantity(str(actual)) == quantity(str(wanted))
    except ValueError:
        return False
