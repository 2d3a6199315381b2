"""Columns and rows of a table in exports: by default no column that could be a secret."""

import sqlalchemy as sa

from windlass.core.leaving.claims import Fate, Scope, TableClaim

# Words of columns' names. What only sounds so, a claim shows by its name.
_SECRET = frozenset({
    "secret", "secrets", "digest", "token", "password", "credential", "credentials", "envelope",
    "sealed", "wrapped", "salt", "hash", "nonce", "private", "cookie",
})  # fmt: skip
# Of the work on a row.
_INTERNAL = frozenset({"lease_owner", "lease_until"})
# A person whose export it is.
PERSON = "user_id"


def exported_columns(claim: TableClaim, scope: Scope) -> list[sa.Column[object]]:
    """The columns that an export of the scope has."""
    hidden = claim.hidden | claim.apart if scope.user_id else claim.hidden
    return [
        column
        for column in claim.table.c
        if column.name not in hidden
        and not _is_secret(claim, column)
        and not (scope.user_id and _names_others(column.name))
    ]


def exported_rows(claim: TableClaim, scope: Scope) -> sa.ColumnElement[bool] | None:
    """The rows that an export of the scope has; None: it has nothing of the table."""
    if claim.fate is Fate.NOBODYS or claim.unexported:
        return None
    found = claim.own or claim.where
    where = None if found is None else found(scope)
    if where is None or not scope.user_id:
        return where
    columns = claim.table.c
    return sa.and_(where, columns[PERSON] == scope.user_id) if PERSON in columns else None


def _is_secret(claim: TableClaim, column: sa.Column[object]) -> bool:
    name = column.name
    if isinstance(column.type, sa.LargeBinary) or name in _INTERNAL:
        return True
    return name not in claim.shown and not _SECRET.isdisjoint(name.split("_"))


def _names_others(name: str) -> bool:
    """Returns True for ids of who did something to a person, and of whose power it rests on."""
    return name.endswith(("_by", "rests_on"))
