"""Roles that tenants make of permissions, groups of members, and who has which role.

Revision ID: 202611280310
Revises: 202611280302
Create Date: 2026-11-28 03:10:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611280310"
down_revision = "202611280302"
branch_labels = None
depends_on = None


def _text(name: str, **options: object) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, **options)  # type: ignore[arg-type]


def upgrade() -> None:
    op.create_table(
        "users_roles",
        _text("id", primary_key=True),
        _text("organization_id"),
        _text("project_id"),
        _text("name"),
        _text("description"),
        sa.Column("permissions", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("organization_id", "project_id", "name"),
    )
    op.create_table(
        "users_role_assignments",
        _text("organization_id", primary_key=True),
        _text("project_id", primary_key=True),
        _text("role_id", primary_key=True),
        _text("user_id", primary_key=True),
        _text("group_id", primary_key=True),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        _text("assigned_by"),
    )
    for column in ("role_id", "user_id", "group_id", "ends_at"):
        op.create_index(f"ix_users_role_assignments_{column}", "users_role_assignments", [column])
    op.create_table(
        "users_groups",
        _text("id", primary_key=True),
        _text("organization_id"),
        _text("name"),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("organization_id", "name"),
    )
    op.create_table(
        "users_group_members",
        _text("group_id", primary_key=True),
        _text("user_id", primary_key=True),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_users_group_members_user_id", "users_group_members", ["user_id"])


def downgrade() -> None:
    op.drop_table("users_group_members")
    op.drop_table("users_groups")
    op.drop_table("users_role_assignments")
    op.drop_table("users_roles")
