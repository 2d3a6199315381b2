"""Filters and orders of directories' lists as conditions of queries.

Values travel as parameters, and every condition is true or false, never unknown.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from windlass.api.users.v1 import directory_pb2 as pb
from windlass.bounds import DIRECTORY_TEXT_LENGTH, MAX_FILTER_TERMS
from windlass.core.errors import InvalidArgument
from windlass.users.directory.domain import NAME_PARTS
from windlass.users.directory.known import KNOWN_PEOPLE
from windlass.users.tables import group_members, groups

Condition = sa.ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column that filters may name."""

    column: sa.ColumnElement[Any]
    kind: Literal["exact", "folded", "flag", "time"] = "folded"


# One of an attribute's values that fits a condition on their parts.
Some = Callable[[Callable[[Mapping[str, Attribute]], Condition]], Condition]


@dataclass(frozen=True, slots=True)
class Filterable:
    """The attributes of a kind of resource: those with one value, and those with several."""

    single: Mapping[str, Attribute]
    several: Mapping[str, Some]

    def condition(self, node: pb.DirectoryFilter) -> Condition:
        """The condition of a filter; raises InvalidArgument."""
        return _Reading(self).read(node)

    def order(self, name: str, *, descending: bool) -> sa.ColumnElement[Any]:
        """The order by an attribute; raises InvalidArgument."""
        if name not in self.single:
            raise InvalidArgument(f"Nothing is sorted by {name[:100]!r}.", param="sort_by")
        column = _folded(self.single[name])
        return column.desc() if descending else column.asc()


@cache
def of_people() -> Filterable:
    """Attributes that people are filtered by."""
    known = KNOWN_PEOPLE
    single = {
        "id": Attribute(known.c.id, "exact"),
        "external_id": Attribute(known.c.external_id, "exact"),
        "user_name": Attribute(known.c.user_name),
        "display_name": Attribute(known.c.display_name),
        "active": Attribute(known.c.active, "flag"),
        **{f"name.{part}": Attribute(_text(known.c.name, part)) for part in NAME_PARTS},
        **_times(known.c.created_at, known.c.updated_at),
    }

    def some_email(fits: Callable[[Mapping[str, Attribute]], Condition]) -> Condition:
        entries = sa.func.jsonb_array_elements(known.c.emails).table_valued(
            sa.column("value", JSONB)
        )
        entry = entries.c.value
        parts = {
            "value": Attribute(_text(entry, "value")),
            "type": Attribute(_text(entry, "type")),
            "primary": Attribute(_text(entry, "primary") == "true", "flag"),
        }
        return sa.exists(sa.select(1).select_from(entries).where(fits(parts)))

    return Filterable(single, {"emails": some_email})


@cache
def of_groups() -> Filterable:
    """Attributes that groups are filtered by."""
    single = {
        "id": Attribute(groups.c.id, "exact"),
        "external_id": Attribute(groups.c.external_id, "exact"),
        "display_name": Attribute(groups.c.name),
        **_times(groups.c.created_at, groups.c.updated_at),
    }

    def some_member(fits: Callable[[Mapping[str, Attribute]], Condition]) -> Condition:
        parts = {"value": Attribute(group_members.c.user_id, "exact")}
        return sa.exists().where(group_members.c.group_id == groups.c.id, fits(parts))

    return Filterable(single, {"members": some_member})


def _times(created: sa.ColumnElement[int], updated: sa.ColumnElement[int]) -> dict[str, Attribute]:
    return {"created_at": Attribute(created, "time"), "updated_at": Attribute(updated, "time")}


def _text(value: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[str]:
    found: sa.ColumnElement[str] = value.op("->>")(sa.literal(name))
    return sa.func.coalesce(found, "")


class _Reading:
    """One filter while it is read, and how many terms it may still have."""

    def __init__(self, resource: Filterable):
        self._resource = resource
        self._left = MAX_FILTER_TERMS

    def read(
        self, node: pb.DirectoryFilter, parts: Mapping[str, Attribute] | None = None
    ) -> Condition:
        """The condition; `parts` are those of one value of an attribute, within its brackets."""
        self._left -= 1
        if self._left < 0:
            raise InvalidArgument(f"A filter has at most {MAX_FILTER_TERMS} terms.", param="filter")
        kind = node.WhichOneof("node")
        if kind == "comparison":
            said = node.comparison
            return self._of(said.attribute, parts, lambda one: _compared(one, said))
        if kind == "present":
            return self._of(node.present, parts, _present)
        if kind == "all_of":
            return sa.and_(sa.true(), *(self.read(one, parts) for one in node.all_of.terms))
        if kind == "any_of":
            return sa.or_(sa.false(), *(self.read(one, parts) for one in node.any_of.terms))
        if kind == "negated":
            return sa.not_(self.read(node.negated, parts))
        if kind == "selection" and parts is None:
            inner = node.selection.filter
            return self._some(node.selection.attribute, lambda found: self.read(inner, found))
        raise InvalidArgument("The filter has a part that means nothing.", param="filter")

    def _of(
        self,
        name: str,
        parts: Mapping[str, Attribute] | None,
        test: Callable[[Attribute], Condition],
    ) -> Condition:
        single = self._resource.single if parts is None else parts
        if name in single:
            return test(single[name])
        several, _, part = name.partition(".")
        if parts is not None or several not in self._resource.several:
            raise _unknown(name)
        if not part:
            return self._some(several, lambda _: sa.true())
        return self._some(several, lambda found: test(_named(found, part)))

    def _some(self, name: str, fits: Callable[[Mapping[str, Attribute]], Condition]) -> Condition:
        if name not in self._resource.several:
            raise _unknown(name)
        return self._resource.several[name](fits)


def _named(parts: Mapping[str, Attribute], name: str) -> Attribute:
    if name not in parts:
        raise _unknown(name)
    return parts[name]


def _unknown(name: str) -> InvalidArgument:
    return InvalidArgument(f"Nothing is filtered by {name[:100]!r}.", param="filter")


def _present(attribute: Attribute) -> Condition:
    return sa.true() if attribute.kind in ("flag", "time") else attribute.column != ""


_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "ne": operator.ne,
    "gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le,
}  # fmt: skip


def _compared(attribute: Attribute, said: pb.DirectoryFilter.Comparison) -> Condition:
    kind = said.WhichOneof("value")
    wanted = {"flag": "flag", "time": "at"}.get(attribute.kind, "text")
    allowed = ("eq", "ne") if wanted == "flag" else (*_ORDERS, "co", "sw", "ew")
    if kind != wanted or said.operator not in allowed:
        raise InvalidArgument(
            f"{said.operator[:20]!r} does not compare {said.attribute[:100]!r} with this value.",
            param="filter",
        )
    if wanted != "text":
        value = said.flag if wanted == "flag" else said.at
        if said.operator not in _ORDERS:
            raise InvalidArgument("A time begins with nothing.", param="filter")
        found: Condition = _ORDERS[said.operator](attribute.column, value)
        return found
    return _compared_text(attribute, said.operator, said.text)


def _compared_text(attribute: Attribute, name: str, text: str) -> Condition:
    if len(text) > DIRECTORY_TEXT_LENGTH or "\0" in text:
        raise InvalidArgument(
            f"A value has at most {DIRECTORY_TEXT_LENGTH} characters, and no NUL.", param="filter"
        )
    column = _folded(attribute)
    value: sa.ColumnElement[str] = sa.literal(text)
    if attribute.kind == "folded":
        value = sa.func.lower(value)
    if name == "co":
        return sa.func.strpos(column, value) > 0
    if name == "sw":
        return sa.func.starts_with(column, value)
    if name == "ew":
        return sa.func.right(column, sa.func.length(value)) == value
    if name not in ("eq", "ne"):
        # By code points, as everywhere else, and not by the language of the database.
        column = column.collate("C")
    found: Condition = _ORDERS[name](column, value)
    return found


def _folded(attribute: Attribute) -> sa.ColumnElement[Any]:
    return sa.func.lower(attribute.column) if attribute.kind == "folded" else attribute.column
