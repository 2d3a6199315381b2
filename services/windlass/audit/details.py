"""Details of a change as an event holds them: JSON of the fields that differ, bounded.

Only text, numbers, truth values, and lists and maps of these are written; never bytes, nor a field
whose name is that of a secret or of a person's address. All beyond ASCII is escaped, so that
nothing in it ends a line, moves a cursor or turns text around.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

# Of the text of one record, in bytes.
DETAIL_BYTES = 4096
_TEXT, _ITEMS, _DEPTH = 256, 100, 3
_SECRET = re.compile(
    r"secret|token|password|passphrase|credential|digest|envelope|private|authorization|cookie"
)
# Who leaves would be in the log until their organization leaves.
_PERSONAL = frozenset({"email", "emails", "user_name"})
# What a record is, and what it belongs to: told beside what differs.
_IDENTIFIES = re.compile(r"(^|_)id$|^kind$")
_OMITTED = "omitted"
_write = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


def details(before: Any, after: Any) -> tuple[str, str]:
    """JSON of what a record was and is; of two that differ, only the fields that do.

    Empty for what was not or is no more, and for two that are the same.
    """
    old, new = _plain(before), _plain(after)
    if before is None or after is None:
        return _text(_filled(old)), _text(_filled(new))
    names = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    if not names:
        return "", ""
    same = {name: value for name, value in _filled(new).items() if _IDENTIFIES.search(name)}
    was = {name: old[name] for name in sorted(names) if name in old}
    now = {name: new[name] for name in sorted(names) if name in new}
    return _text(was), _text(same | now)


def _plain(record: Any) -> dict[str, Any]:
    """Fields of a record that may be told."""
    if is_dataclass(record):
        record = {one.name: getattr(record, one.name) for one in fields(record)}
    told = {name: _value(value) for name, value in (record or {}).items() if _is_told(name)}
    return {name: value for name, value in told.items() if value is not None}


def _is_told(name: str) -> bool:
    return name not in _PERSONAL and _SECRET.search(name.lower()) is None


def _value(value: Any, depth: int = 0) -> Any:
    """A value as JSON has it; None for one that is not told."""
    if isinstance(value, str | bool | int):
        # A member of an enumeration is its text.
        return value if isinstance(value, bool) else str(value) if isinstance(value, str) else value
    if depth == _DEPTH:
        return None
    if isinstance(value, Mapping):
        found = {str(name): _value(one, depth + 1) for name, one in value.items()}
        return {name: one for name, one in found.items() if one is not None and _is_told(name)}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [one for one in (_value(item, depth + 1) for item in items) if one is not None]
    return None


def _filled(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value or value is False}


def _text(told: Mapping[str, Any]) -> str:
    """Bounded JSON: of too much, the longest fields by their names alone."""
    if not told:
        return ""
    written = {name: _write(_bounded(value)) for name, value in told.items()}
    room = DETAIL_BYTES
    kept: list[str] = []
    omitted: list[str] = []
    for name in sorted(written, key=lambda one: (len(written[one]), one)):
        room -= len(name) + len(written[name]) + 4
        (kept if room >= 0 else omitted).append(name)
    shown = {name: json.loads(written[name]) for name in kept}
    return _write({**shown, _OMITTED: sorted(omitted)} if omitted else shown)


def _bounded(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _TEXT:
        return f"{value[:_TEXT]}… {len(value) - _TEXT} more"
    if isinstance(value, dict):
        first = dict(sorted(value.items())[:_ITEMS])
        return {_bounded(name): _bounded(one) for name, one in first.items()}
    if isinstance(value, list):
        more = [f"… {len(value) - _ITEMS} more"] if len(value) > _ITEMS else []
        return [*map(_bounded, value[:_ITEMS]), *more]
    return value
