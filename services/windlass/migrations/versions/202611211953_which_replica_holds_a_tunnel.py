"""Note which replica holds a cluster's tunnel.

Revision ID: 202611211953
Revises: 202611211947
Create Date: 2026-11-21 19:53:22.996625
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611211953"
down_revision = "202611211947"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sessions_replicas",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions_replicas")),
    )
    op.create_table(
        "sessions_tunnels",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("replica_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("fenced", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lost_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_sessions_tunnels")),
    )
    op.create_index(
        op.f("ix_sessions_tunnels_replica_id"), "sessions_tunnels", ["replica_id"], unique=False
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_sessions_tunnels_replica_id"), table_name="sessions_tunnels")
    op.drop_table("sessions_tunnels")
    op.drop_table("sessions_replicas")
