"""Export what an organization has, and what it knows of a person.

Revision ID: 202611280610
Revises: 202611280605
Create Date: 2026-11-28 11:00:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611280610"
down_revision = "202611280605"
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
    op.create_table(
        "core_exports",
        _text("id"),
        _text("organization_id"),
        _text("user_id"),
        sa.Column("project_ids", postgresql.ARRAY(sa.Text()), nullable=False),
        _text("state"),
        _text("asked_by"),
        _number("asked_at"),
        _number("expires_at"),
        _number("finished_at", server_default="0"),
        _number("bytes", server_default="0"),
        *_lease(),
        sa.PrimaryKeyConstraint("id", name="pk_core_exports"),
    )
    op.create_index(
        "uq_core_exports_live",
        "core_exports",
        ["organization_id", "user_id"],
        unique=True,
        postgresql_where=sa.text("state = 'collecting'"),
    )
    op.create_index(
        "ix_core_exports_organization_id_asked_at_id",
        "core_exports",
        ["organization_id", "asked_at", "id"],
    )
    op.create_table(
        "core_export_steps",
        _text("id"),
        _text("export_id"),
        _text("service"),
        _text("state", server_default="pending"),
        sa.Column("rows", postgresql.JSONB(), nullable=False, server_default="{}"),
        _number("objects", server_default="0"),
        _number("bytes", server_default="0"),
        _text("message", server_default=""),
        sa.Column("tries", sa.Integer(), nullable=False, server_default="0"),
        _number("not_before", server_default="0"),
        *_lease(),
        sa.PrimaryKeyConstraint("id", name="pk_core_export_steps"),
    )
    op.create_index("ix_core_export_steps_export_id", "core_export_steps", ["export_id"])
    op.create_index(
        "ix_core_export_steps_open",
        "core_export_steps",
        ["service"],
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_table(
        "core_export_parts",
        _text("export_id"),
        _text("name"),
        _text("object_key"),
        _number("rows"),
        _number("bytes"),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("export_id", "name", name="pk_core_export_parts"),
    )


def downgrade() -> None:
    op.drop_table("core_export_parts")
    op.drop_table("core_export_steps")
    op.drop_table("core_exports")
