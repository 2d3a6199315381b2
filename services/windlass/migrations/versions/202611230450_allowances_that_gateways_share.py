"""Allowances that gateways share.

Revision ID: 202611230450
Revises: 202611230420
Create Date: 2026-11-23 04:50:00
"""

import sqlalchemy as sa
from alembic import op

revision = "202611230450"
down_revision = "202611230420"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "usage_buckets",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("level", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "kind", name=op.f("pk_usage_buckets")),
    )
    op.create_table(
        "usage_slots",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("held", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "holder", name=op.f("pk_usage_slots")),
    )


def downgrade() -> None:
    op.drop_table("usage_slots")
    op.drop_table("usage_buckets")
