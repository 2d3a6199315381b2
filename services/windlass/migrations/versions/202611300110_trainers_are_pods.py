"""trainers are pods.

Revision ID: 202611300110
Revises: 202611291500
Create Date: 2026-11-30 01:10:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "202611300110"
down_revision = "202611291500"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tuning_pods",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("base_model", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("settings", JSONB(), nullable=False),
        sa.Column("placement", JSONB(), nullable=False),
        sa.Column("token_sha256", sa.Text(), nullable=False),
        sa.Column("desired", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("put_generation", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("urls_at", sa.BigInteger(), nullable=False),
        sa.Column("lease_owner", sa.Text()),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuning_pods")),
    )
    op.create_index(op.f("ix_tuning_pods_project_id"), "tuning_pods", ["project_id"])


def downgrade() -> None:
    op.drop_table("tuning_pods")
