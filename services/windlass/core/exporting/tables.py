"""The tables of exports, which every service reads: who asked, each one's step, and its parts."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from windlass.core.clock import now_seconds
from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns
from windlass.core.leaving.claims import Scope

ROOT = "exports"
COLLECTING, READY, ENDING = "collecting", "ready", "ending"
PENDING, DONE = "pending", "done"
TOPIC = "exports"


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


exports = sa.Table(
    "core_exports",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    # Of one person's export; empty: the whole organization.
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("project_ids", ARRAY(sa.Text), nullable=False),
    # `collecting`, `ready`; `ending` until its objects are removed, and its row with them.
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("asked_by", sa.Text, nullable=False),
    sa.Column("asked_at", sa.BigInteger, nullable=False),
    # From then on nobody sees it; 0 ends it at once.
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    _count("finished_at"),
    # Of the archive, once it is ready.
    _count("bytes"),
    *lease_columns(),
    sa.Index(
        "uq_core_exports_live",
        "organization_id",
        "user_id",
        unique=True,
        postgresql_where=sa.text("state = 'collecting'"),
    ),
    sa.Index(None, "organization_id", "asked_at", "id"),
)
export_steps = sa.Table(
    "core_export_steps",
    metadata,
    # Of the export and the service.
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("export_id", sa.Text, nullable=False, index=True),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False, server_default=PENDING),
    # Rows by table.
    sa.Column("rows", JSONB, nullable=False, server_default="{}"),
    _count("objects"),
    _count("bytes"),
    # What it failed with.
    sa.Column("message", sa.Text, nullable=False, server_default=""),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("not_before", sa.BigInteger, nullable=False, server_default="0"),
    *lease_columns(),
    sa.Index("ix_core_export_steps_open", "service", postgresql_where=sa.text("state = 'pending'")),
)
export_parts = sa.Table(
    "core_export_parts",
    metadata,
    sa.Column("export_id", sa.Text, primary_key=True),
    # Its path in the archive.
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("object_key", sa.Text, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.LargeBinary, nullable=False),
)


def prefix_of(organization_id: str, export_id: str) -> str:
    """The prefix of all objects of an export."""
    return f"exports/{organization_id}/{export_id}/"


def live() -> sa.ColumnElement[bool]:
    """The condition of an export that is not over."""
    return sa.and_(exports.c.state != ENDING, exports.c.expires_at > now_seconds())


def collects(export_id: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """The condition of an id whose export still takes parts: nobody has ended it."""
    return sa.exists().where(
        exports.c.id == export_id, exports.c.state == COLLECTING, exports.c.expires_at > 0
    )


def scope_of(row: sa.Row[tuple[object, ...]]) -> Scope:
    """The scope of a row of `exports`."""
    return Scope(row.organization_id, tuple(row.project_ids), whole=True, user_id=row.user_id)
