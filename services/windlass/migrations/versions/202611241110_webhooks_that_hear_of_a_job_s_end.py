"""Add webhooks, and deliveries to them.

Revision ID: 202611241110
Revises: 202611241100
Create Date: 2026-11-24 11:10:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611241110"
down_revision = "202611241100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "jobs_webhooks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("event_types", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs_webhooks")),
    )
    op.create_index("ix_jobs_webhooks_list", "jobs_webhooks", ["project_id", "created_at", "id"])
    op.create_table(
        "jobs_deliveries",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("ended_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("not_before_ms", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs_deliveries")),
    )
    op.create_index(
        "ix_jobs_deliveries_due", "jobs_deliveries", ["webhook_id", "not_before_ms", "id"]
    )


def downgrade() -> None:
    op.drop_table("jobs_deliveries")
    op.drop_table("jobs_webhooks")
