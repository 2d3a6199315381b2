"""The tables of erasures, which every service reads: who leaves, and how far each service is."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns
from windlass.core.leaving.claims import Scope

SCHEDULED, ERASING, ERASED, UNDONE = "scheduled", "erasing", "erased", "undone"
PENDING, DONE = "pending", "done"


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


erasures = sa.Table(
    "core_erasures",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    # Empty: the whole organization.
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("project_ids", ARRAY(sa.Text), nullable=False),
    # Projects that were not archived before: an undo makes them live again.
    sa.Column("restores", ARRAY(sa.Text), nullable=False),
    # `scheduled`, `erasing`, `erased`; or `undone`.
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("asked_by", sa.Text, nullable=False),
    sa.Column("asked_at", sa.BigInteger, nullable=False),
    sa.Column("erase_at", sa.BigInteger, nullable=False),
    _count("started_at"),
    _count("finished_at"),
    # Services erase twice: the second time what others' work left behind during the first.
    sa.Column("round", sa.Integer, nullable=False, server_default="0"),
    # A JWS, once all is erased.
    sa.Column("report", sa.Text, nullable=False, server_default=""),
    *lease_columns(),
    sa.Index(
        "uq_core_erasures_open",
        "organization_id",
        "project_id",
        unique=True,
        postgresql_where=sa.text("state IN ('scheduled', 'erasing')"),
    ),
    sa.Index(None, "asked_at", "id"),
)
steps = sa.Table(
    "core_erasure_steps",
    metadata,
    # Of the erasure and the service.
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("erasure_id", sa.Text, nullable=False, index=True),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False, server_default=PENDING),
    # Rows by table.
    sa.Column("rows", JSONB, nullable=False, server_default="{}"),
    _count("objects"),
    _count("bytes"),
    # Objects that are counted already and may be gone already: `prefixes`, `objects`, `bytes`.
    sa.Column("batch", JSONB(none_as_null=True)),
    # What it waits for, or failed with.
    sa.Column("message", sa.Text, nullable=False, server_default=""),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("not_before", sa.BigInteger, nullable=False, server_default="0"),
    *lease_columns(),
    sa.Index(
        "ix_core_erasure_steps_open", "service", postgresql_where=sa.text("state = 'pending'")
    ),
)
OPEN = erasures.c.state.in_([sa.literal_column("'scheduled'"), sa.literal_column("'erasing'")])


def scope_of(row: sa.Row[tuple[object, ...]]) -> Scope:
    """The scope of a row of `erasures`."""
    return Scope(row.organization_id, tuple(row.project_ids), not row.project_id)


def leaves(project_id: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """The condition of a project that leaves: its work ends, and nothing is lost yet."""
    return sa.exists().where(OPEN, project_id == sa.any_(erasures.c.project_ids))
