"""Let members ask for roles for a time.

Revision ID: 202611280550
Revises: 202611280541
Create Date: 2026-11-28 05:50:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611280550"
down_revision = "202611280541"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "users_roles", sa.Column("elevation_askers", sa.Text(), server_default="", nullable=False)
    )
    op.add_column(
        "users_roles",
        sa.Column("elevation_seconds", sa.BigInteger(), server_default="0", nullable=False),
    )
    op.add_column(
        "users_roles",
        sa.Column("elevation_approvals", sa.Integer(), server_default="0", nullable=False),
    )
    op.create_table(
        "users_elevations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("role_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("seconds", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("approvals", sa.Integer(), nullable=False),
        sa.Column("approved_by", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("approval_rests_on", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("denied_by", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users_elevations")),
    )
    for columns in (
        ["organization_id", "project_id", "created_at"],
        ["role_id"],
        ["user_id"],
    ):
        name = f"ix_users_elevations_{'_'.join(columns)}"
        op.create_index(op.f(name), "users_elevations", columns)


def downgrade() -> None:
    # What was approved stays given until its end.
    op.drop_table("users_elevations")
    for name in ("elevation_approvals", "elevation_seconds", "elevation_askers"):
        op.drop_column("users_roles", name)
