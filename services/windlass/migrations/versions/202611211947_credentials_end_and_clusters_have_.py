"""Credentials end, and clusters have assignments, quota and an inventory.

Revision ID: 202611211947
Revises: 202611211938
Create Date: 2026-11-21 19:47:07.500522
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611211947"
down_revision = "202611211938"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "clusters_assignments",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("local_queue", sa.Text(), nullable=False),
        sa.Column("cluster_queue", sa.Text(), nullable=False),
        sa.Column("priority_class", sa.Text(), nullable=False),
        sa.Column("price_micros", sa.BigInteger(), nullable=False),
        sa.Column("node_selector", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("cluster_id", "namespace", name=op.f("pk_clusters_assignments")),
    )
    op.create_index(
        "uq_clusters_assignments_project",
        "clusters_assignments",
        ["cluster_id", "project_id"],
        unique=True,
        postgresql_where=sa.text("state = 'assigned'"),
    )
    op.create_table(
        "clusters_inventory",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("item", sa.LargeBinary(), nullable=False),
        sa.Column("gpus", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("used_gpus", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cpu_millis", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "key", name=op.f("pk_clusters_inventory")),
    )
    op.create_index(
        "ix_clusters_inventory_kind", "clusters_inventory", ["cluster_id", "kind"], unique=False
    )
    op.create_table(
        "clusters_observations",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), server_default="", nullable=False),
        sa.Column("sequence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("gpus", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("used_gpus", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cpu_millis", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("spec_status", sa.LargeBinary(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_clusters_observations")),
    )
    op.create_table(
        "clusters_quotas",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_clusters_quotas")),
    )
    op.add_column(
        "clusters_clusters",
        sa.Column("spec_revision", sa.BigInteger(), server_default="0", nullable=False),
    )
    op.add_column(
        "clusters_credentials", sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True)
    )
    op.add_column(
        "clusters_credentials", sa.Column("used_at", sa.DateTime(timezone=True), nullable=True)
    )
    op.add_column(
        "clusters_workloads", sa.Column("namespace", sa.Text(), server_default="", nullable=False)
    )


def downgrade() -> None:
    op.drop_column("clusters_workloads", "namespace")
    op.drop_column("clusters_credentials", "used_at")
    op.drop_column("clusters_credentials", "expires_at")
    op.drop_column("clusters_clusters", "spec_revision")
    op.drop_table("clusters_quotas")
    op.drop_table("clusters_observations")
    op.drop_index("ix_clusters_inventory_kind", table_name="clusters_inventory")
    op.drop_table("clusters_inventory")
    op.drop_index(
        "uq_clusters_assignments_project",
        table_name="clusters_assignments",
        postgresql_where=sa.text("state = 'assigned'"),
    )
    op.drop_table("clusters_assignments")
