"""Names of models that a caller is narrowed to, by its key and its project; pure but for the
condition of a query.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from windlass.core.errors import NotFound

# At the end of a pattern: any name that begins with what is before it.
ANY = "*"
# At the beginning of one: what is not admitted, whatever else is.
NOT = "!"
NAME_LENGTH = 256


@dataclass(frozen=True)
class ModelScope:
    """Models by exact names and by the beginnings of names, as `llama-3` and `ft:llama-3:*`.

    After an exclamation mark they are those that it does not admit; with such patterns alone, it
    admits all others. A name is judged as it is written: that a model is an adapter of another,
    or the same under another name, says nothing.
    """

    patterns: tuple[str, ...]

    @classmethod
    def of(cls, patterns: Iterable[str]) -> "ModelScope | None":
        """The scope of some patterns; None without any: nothing is narrowed."""
        return cls(tuple(found)) if (found := sorted(set(patterns))) else None

    def admits(self, name: str) -> bool:
        """Returns True if a caller may use a model of this name."""
        named, begin, denied, denied_begin = self._parts
        if name in denied or name.startswith(denied_begin):
            return False
        return not (named or begin) or name in named or name.startswith(begin)

    def within(self, other: "ModelScope") -> "ModelScope":
        """Returns the scope that admits what both admit."""
        ours, theirs = self.admitted, other.admitted
        both = {*ours, *theirs}
        if ours and theirs:
            both = {a for a in ours if any(is_within(a, b) for b in theirs)}
            both |= {b for b in theirs if any(is_within(b, a) for a in ours)}
            both = both or {NOT + ANY}
        denied = (NOT + one for scope in (self, other) for one in scope.denied)
        return ModelScope(tuple(sorted({*both, *denied})))

    def covers(self, other: "ModelScope | None") -> bool:
        """Returns True if another, None for one that is not narrowed, admits nothing beyond."""
        if other is None:
            return False
        ours, theirs = self.admitted, other.admitted
        if ours and not (
            theirs and all(any(is_within(one, outer) for outer in ours) for one in theirs)
        ):
            return ANY in other.denied
        return all(other.has_none_of(one) for one in self.denied)

    def has_none_of(self, pattern: str) -> bool:
        """Returns True if it admits no name of a pattern."""
        if any(is_within(pattern, one) for one in self.denied):
            return True
        ours = self.admitted
        return bool(ours) and not any(
            is_within(one, pattern) or is_within(pattern, one) for one in ours
        )

    def condition(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        """The rows of a query whose model's name is admitted."""
        named, begin, denied, denied_begin = self._parts
        found = sa.not_(_matches(column, denied, denied_begin))
        return sa.and_(found, _matches(column, named, begin)) if named or begin else found

    @property
    def admitted(self) -> tuple[str, ...]:
        """Patterns of what is admitted; none where all is but for what is denied."""
        return tuple(one for one in self.patterns if not one.startswith(NOT))

    @property
    def denied(self) -> tuple[str, ...]:
        """Patterns of what is not admitted, without their mark."""
        return tuple(one.removeprefix(NOT) for one in self.patterns if one.startswith(NOT))

    @cached_property
    def _parts(self) -> tuple[frozenset[str], tuple[str, ...], frozenset[str], tuple[str, ...]]:
        return (*_split(self.admitted), *_split(self.denied))


def _split(patterns: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Exact names, and beginnings of names."""
    found = list(patterns)
    names = frozenset(one for one in found if not one.endswith(ANY))
    return names, tuple(one.removesuffix(ANY) for one in found if one.endswith(ANY))


def _matches(
    column: sa.ColumnElement[Any], names: Iterable[str], beginnings: Iterable[str]
) -> sa.ColumnElement[bool]:
    begins = (column.startswith(one, autoescape=True) for one in beginnings)
    return sa.or_(column.in_(sorted(names)), *begins)


def is_within(inner: str, outer: str) -> bool:
    """Returns True if every name that a pattern admits is admitted by another."""
    return inner == outer or (outer.endswith(ANY) and inner.startswith(outer.removesuffix(ANY)))


def unknown_model(name: str, param: str = "model") -> NotFound:
    """The error of a model that is not there, or not for the caller."""
    return NotFound(
        f"The model {name[:NAME_LENGTH]!r} does not exist or you do not have access to it.",
        reason="model_not_found",
        param=param,
    )
