"""Give projects data keys, and organizations keys of their own that wrap them.

Revision ID: 202611280541
Revises: 202611280540
Create Date: 2026-11-28 05:41:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611280541"
down_revision = "202611280540"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "users_external_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("place", postgresql.JSONB(), nullable=False),
        sa.Column("credential", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users_external_keys")),
    )
    op.create_index(
        op.f("ix_users_external_keys_organization_id_id"),
        "users_external_keys",
        ["organization_id", "id"],
    )
    op.create_table(
        "users_data_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("external_key_id", sa.Text(), nullable=False),
        sa.Column("wrapped", sa.Text(), nullable=False),
        sa.Column("mark", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("retired_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("settled", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("retry_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users_data_keys")),
    )
    op.create_index(
        "ix_users_data_keys_current",
        "users_data_keys",
        ["project_id"],
        unique=True,
        postgresql_where=sa.text("retired_at = 0"),
    )
    op.create_index(
        op.f("ix_users_data_keys_project_id_mark"), "users_data_keys", ["project_id", "mark"]
    )
    op.create_index(
        op.f("ix_users_data_keys_external_key_id"), "users_data_keys", ["external_key_id"]
    )
    op.add_column(
        "users_projects",
        sa.Column("external_key_id", sa.Text(), server_default="", nullable=False),
    )


def downgrade() -> None:
    # What data keys have sealed, no earlier release opens: put these secrets again.
    op.drop_column("users_projects", "external_key_id")
    op.drop_table("users_data_keys")
    op.drop_table("users_external_keys")
