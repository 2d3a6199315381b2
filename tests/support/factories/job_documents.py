"""Bodies that create jobs, made of fields; bytes are inserted as they are, JSON or not."""

import json
from typing import Any


def document(
    *,
    method: str = "",
    hyperparameters: bytes = b"",
    grader: bytes = b"",
    extra: bytes = b"",
    integrations: bytes = b"",
    **fields: Any,
) -> bytes:
    """Returns a body; `extra` is its `windlass`, hyperparameters go to the method, if any."""
    parts = {name: json.dumps(value).encode() for name, value in fields.items()}
    inner = {"hyperparameters": hyperparameters, "grader": grader}
    if method:
        kind = json.dumps(method).encode()
        parts["method"] = _object({"type": kind, **_chosen(method, inner)})
    else:
        parts |= _given({"hyperparameters": hyperparameters})
    return _object(parts | _given({"windlass": extra, "integrations": integrations}))


def _chosen(method: str, inner: dict[str, bytes]) -> dict[str, bytes]:
    given = _given(inner)
    if "grader" in given and method != "reinforcement":
        # Where it is, whichever method was chosen.
        return {"reinforcement": _object({"grader": given["grader"]})}
    return {method: _object(given)} if given else {}


def _given(parts: dict[str, bytes]) -> dict[str, bytes]:
    return {name: value for name, value in parts.items() if value}


def _object(parts: dict[str, bytes]) -> bytes:
    pairs = (json.dumps(name).encode() + b": " + value for name, value in parts.items())
    return b"{" + b", ".join(pairs) + b"}"
