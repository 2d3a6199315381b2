"""Claims: each service names its tables and its objects, and what becomes of them.

A service keeps one list, in its `leaving.py`; a table or a root of object keys that nobody
claims fails a test.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY


class Fate(StrEnum):
    """Fate of a table's rows of whoever leaves."""

    ERASED = "erased"
    # Ids stay, for audit and accounting; names are overwritten.
    IDS = "ids"
    # No tenant has rows in it, or they go by themselves.
    NOBODYS = "nobodys"


@dataclass(frozen=True, slots=True)
class Scope:
    """Scope of who leaves: some projects, or a whole organization, whose projects are all named."""

    organization_id: str
    project_ids: tuple[str, ...]
    whole: bool
    # Of an export alone: the one person whom it is about; empty: all that is the scope's.
    user_id: str = ""

    def has_project(self, column: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
        """The condition of a column that holds a project's id."""
        return column == sa.any_(sa.literal(list(self.project_ids), ARRAY(sa.Text)))


# The rows of a scope; None: it has none there.
Where = Callable[[Scope], sa.ColumnElement[bool] | None]
# Prefixes of object keys, one column of text.
Prefixes = Callable[[Scope], sa.Select[tuple[str]]]
# Ends what still runs; returns what it waits for, or an empty text.
Prepare = Callable[[Scope], Awaitable[str]]


@dataclass(frozen=True)
class TableClaim:
    """One table and its fate."""

    table: sa.Table
    fate: Fate
    where: Where | None = None
    # Of `IDS`: columns and what they become.
    values: Mapping[str, Any] = field(default_factory=dict)
    # Of `IDS`: rows that still have a name; by default those whose values differ.
    named: sa.ColumnElement[bool] | None = None
    why: str = ""
    # Of an export: the rows that it has, where those that are erased are others' too.
    own: Where | None = None
    # Columns that no export has, beside those that are secret by their name or type.
    hidden: frozenset[str] = frozenset()
    # Columns that only sound secret.
    shown: frozenset[str] = frozenset()
    # Columns that may tell of others, so that no person's export has them.
    apart: frozenset[str] = frozenset()
    # Why exports have nothing of the table.
    unexported: str = ""

    def hiding(self, *columns: str) -> "TableClaim":
        """The claim, of which exports leave columns out."""
        return replace(self, hidden=self._known(columns))

    def showing(self, *columns: str) -> "TableClaim":
        """The claim, of which exports have columns that only sound secret."""
        return replace(self, shown=self._known(columns))

    def keeping_apart(self, *columns: str) -> "TableClaim":
        """The claim, of which a person's export leaves columns out, as they may tell of others."""
        return replace(self, apart=self._known(columns))

    def exporting(self, own: Where) -> "TableClaim":
        """The claim, of which exports have these rows alone."""
        return replace(self, own=own)

    def not_exported(self, why: str) -> "TableClaim":
        """The claim, of which exports have nothing."""
        return replace(self, unexported=why)

    def _known(self, columns: tuple[str, ...]) -> frozenset[str]:
        if unknown := set(columns) - set(self.table.c.keys()):
            raise ValueError(f"{self.table.name} has no columns {sorted(unknown)}.")
        return frozenset(columns)


@dataclass(frozen=True)
class ObjectClaim:
    """The first segment of object keys; no prefixes: ids alone, which stay."""

    root: str
    prefixes: Prefixes | None = None
    why: str = ""
    # Why exports have no such objects.
    unexported: str = ""


@dataclass(frozen=True)
class LeavingClaims:
    """Everything that a service has. Tables are erased in order: what others refer to is last."""

    service: str
    tables: tuple[TableClaim, ...]
    objects: tuple[ObjectClaim, ...] = ()

    @property
    def erases(self) -> bool:
        """True if there is anything for the service to do when a tenant leaves."""
        return any(one.fate is Fate.ERASED or one.values for one in self.tables)

    @property
    def exports(self) -> bool:
        """True if there is anything of a tenant that the service can hand out."""
        tables = any(one.fate is not Fate.NOBODYS and not one.unexported for one in self.tables)
        return tables or any(one.prefixes and not one.unexported for one in self.objects)


def erased(table: sa.Table, where: Where | None = None) -> TableClaim:
    """A claim of rows that go; by default those that name the organization or its projects."""
    return TableClaim(table, Fate.ERASED, where or of_tenant(table))


def erased_with(column: sa.Column[str], parent: sa.Table, where: Where | None = None) -> TableClaim:
    """A claim of rows that go with the row of `parent` whose id is in `column`."""
    rows = where or of_tenant(parent)

    def children(scope: Scope) -> sa.ColumnElement[bool] | None:
        found = rows(scope)
        return None if found is None else column.in_(sa.select(parent.c.id).where(found))

    return TableClaim(column.table, Fate.ERASED, children)


def ids_alone(
    table: sa.Table,
    where: Where | None = None,
    *,
    named: sa.ColumnElement[bool] | None = None,
    why: str,
    **values: Any,
) -> TableClaim:
    """A claim of rows that stay without their names."""
    return TableClaim(table, Fate.IDS, where or of_tenant(table), values, named, why)


def nobodys(table: sa.Table, why: str) -> TableClaim:
    """A claim of a table that is left alone."""
    return TableClaim(table, Fate.NOBODYS, why=why)


def of_tenant(table: sa.Table) -> Where:
    """The rows that name the organization or its projects."""

    def rows(scope: Scope) -> sa.ColumnElement[bool] | None:
        columns = table.c
        if "organization_id" in columns and scope.whole:
            return columns.organization_id == scope.organization_id
        if "project_id" in columns:
            return scope.has_project(columns.project_id)
        return None

    return rows


def by_project(root: str) -> Prefixes:
    """The prefixes of a root whose keys go on with the project's id."""

    def prefixes(scope: Scope) -> sa.Select[tuple[str]]:
        ids = sa.literal(list(scope.project_ids), ARRAY(sa.Text))
        return sa.select((root + "/" + sa.func.unnest(ids) + "/").label("prefix"))

    return prefixes


def of_projects(table: sa.Table) -> Where:
    """The rows of the projects alone: those without a project are the installation's."""
    return lambda scope: scope.has_project(table.c.project_id)
