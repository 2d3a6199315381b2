"""devices are shared.

Revision ID: 202611291500
Revises: 202611291400
Create Date: 2026-11-29 15:00:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "202611291500"
down_revision = "202611291400"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tuning_leases",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("device_bytes", sa.BigInteger(), nullable=False),
        sa.Column("host_bytes", sa.BigInteger(), nullable=False),
        sa.Column("max_residents", sa.BigInteger(), nullable=False),
        sa.Column("devices", sa.BigInteger(), nullable=False),
        sa.Column("shares", JSONB(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuning_leases")),
        sa.UniqueConstraint("host", "device", name=op.f("uq_tuning_leases_host_device")),
    )
    op.create_table(
        "tuning_seats",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("lease_id", sa.Text(), server_default="", nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("workload", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("device_bytes", sa.BigInteger(), nullable=False),
        sa.Column("host_bytes", sa.BigInteger(), nullable=False),
        sa.Column("residue_bytes", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("sequence", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("turn", sa.Text(), server_default="parked", nullable=False),
        sa.Column("turn_project_id", sa.Text(), server_default="", nullable=False),
        sa.Column("asked_at", sa.Double()),
        sa.Column("granted_at", sa.Double(), server_default="0", nullable=False),
        sa.Column("served_at", sa.Double(), server_default="0", nullable=False),
        sa.Column("switches", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("process", sa.Text(), server_default="", nullable=False),
        sa.Column("lease_owner", sa.Text()),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuning_seats")),
    )
    op.create_index(op.f("ix_tuning_seats_host"), "tuning_seats", ["host"])
    op.create_index(op.f("ix_tuning_seats_lease_id"), "tuning_seats", ["lease_id"])


def downgrade() -> None:
    op.drop_table("tuning_seats")
    op.drop_table("tuning_leases")
