"""Provision people and groups by SCIM.

Revision ID: 202611280530
Revises: 202611280521
Create Date: 2026-11-28 05:30:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611280530"
down_revision = "202611280521"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("users_people", "users_groups"):
        op.add_column(
            table, sa.Column("managed_at", sa.BigInteger(), server_default="0", nullable=False)
        )
        op.add_column(table, sa.Column("external_id", sa.Text(), server_default="", nullable=False))
        op.add_column(
            table, sa.Column("version", sa.BigInteger(), server_default="0", nullable=False)
        )
    op.add_column(
        "users_groups", sa.Column("updated_at", sa.BigInteger(), server_default="0", nullable=False)
    )
    op.add_column(
        "users_people", sa.Column("user_name", sa.Text(), server_default="", nullable=False)
    )
    op.add_column(
        "users_people",
        sa.Column("attributes", postgresql.JSONB(), server_default="{}", nullable=False),
    )
    op.create_index(
        "uq_users_people_user_name",
        "users_people",
        ["organization_id", sa.text("lower(user_name)")],
        unique=True,
        postgresql_where=sa.text("user_name <> ''"),
    )
    op.create_index(
        "ix_users_people_lower_user_id",
        "users_people",
        ["organization_id", sa.text("lower(user_id)")],
        postgresql_where=sa.text("user_name = ''"),
    )
    op.create_index(
        "ix_users_members_lower_user_id",
        "users_members",
        ["organization_id", sa.text("lower(user_id)")],
    )
    op.create_table(
        "users_directories",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users_directories")),
    )


def downgrade() -> None:
    op.drop_table("users_directories")
    op.drop_index("ix_users_members_lower_user_id", table_name="users_members")
    op.drop_index("ix_users_people_lower_user_id", table_name="users_people")
    op.drop_index("uq_users_people_user_name", table_name="users_people")
    op.drop_column("users_people", "attributes")
    op.drop_column("users_people", "user_name")
    op.drop_column("users_groups", "updated_at")
    for table in ("users_groups", "users_people"):
        for name in ("version", "external_id", "managed_at"):
            op.drop_column(table, name)
