"""Erase projects and organizations that leave.

Revision ID: 202611280560
Revises: 202611280551
Create Date: 2026-11-28 06:00:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611280560"
down_revision = "202611280551"
branch_labels = None
depends_on = None


def _text(name: str, server_default: str | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, server_default=server_default)


def _number(name: str, server_default: str | None = None) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default=server_default)


def _lease() -> tuple[sa.Column[str], sa.Column[object]]:
    return (
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
    )


def upgrade() -> None:
    op.add_column("users_organizations", _number("held_at", server_default="0"))
    op.create_table(
        "core_erasures",
        _text("id"),
        _text("organization_id"),
        _text("project_id"),
        sa.Column("project_ids", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("restores", postgresql.ARRAY(sa.Text()), nullable=False),
        _text("state"),
        _text("asked_by"),
        _number("asked_at"),
        _number("erase_at"),
        _number("started_at", server_default="0"),
        _number("finished_at", server_default="0"),
        sa.Column("round", sa.Integer(), nullable=False, server_default="0"),
        _text("report", server_default=""),
        *_lease(),
        sa.PrimaryKeyConstraint("id", name="pk_core_erasures"),
    )
    op.create_index(
        "uq_core_erasures_open",
        "core_erasures",
        ["organization_id", "project_id"],
        unique=True,
        postgresql_where=sa.text("state IN ('scheduled', 'erasing')"),
    )
    op.create_index("ix_core_erasures_asked_at_id", "core_erasures", ["asked_at", "id"])
    op.create_table(
        "core_erasure_steps",
        _text("id"),
        _text("erasure_id"),
        _text("service"),
        _text("state", server_default="pending"),
        sa.Column("rows", postgresql.JSONB(), nullable=False, server_default="{}"),
        _number("objects", server_default="0"),
        _number("bytes", server_default="0"),
        sa.Column("batch", postgresql.JSONB(), nullable=True),
        _text("message", server_default=""),
        sa.Column("tries", sa.Integer(), nullable=False, server_default="0"),
        _number("not_before", server_default="0"),
        *_lease(),
        sa.PrimaryKeyConstraint("id", name="pk_core_erasure_steps"),
    )
    op.create_index("ix_core_erasure_steps_erasure_id", "core_erasure_steps", ["erasure_id"])
    op.create_index(
        "ix_core_erasure_steps_open",
        "core_erasure_steps",
        ["service"],
        postgresql_where=sa.text("state = 'pending'"),
    )


def downgrade() -> None:
    op.drop_table("core_erasure_steps")
    op.drop_table("core_erasures")
    op.drop_column("users_organizations", "held_at")
