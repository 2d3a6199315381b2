"""Claims of the tables of usage: accounting keeps ids and amounts, and no names."""

import secrets

import sqlalchemy as sa

from windlass.core.leaving.claims import LeavingClaims, TableClaim, erased, ids_alone
from windlass.usage.allowances import buckets, slots
from windlass.usage.store import hours, records

# Kept nowhere, so that nobody can try names; it keeps sums of different models apart.
_SALT = secrets.token_hex(16)


def _without_model(table: sa.Table) -> TableClaim:
    model = table.c.model
    return ids_alone(
        table,
        named=sa.not_(model.regexp_match("^erased-[0-9a-f]{32}$")),
        why="accounting; names of models become random ones",
        model="erased-" + sa.func.md5(sa.literal(_SALT) + model),
    )


CLAIMS = LeavingClaims(
    "usage",
    (erased(buckets), erased(slots), _without_model(records), _without_model(hours)),
)
