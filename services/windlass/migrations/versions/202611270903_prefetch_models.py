"""Have clusters bring models before anyone asks for them.

Revision ID: 202611270903
Revises: 202611270902
Create Date: 2026-11-27 09:03:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611270903"
down_revision = "202611270902"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "inference_prefetches",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("version_id", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("put_generation", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("urls_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=False),
        sa.Column("counted_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("counted_at", sa.Double(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inference_prefetches")),
        sa.UniqueConstraint(
            "project_id",
            "version_id",
            "cluster_id",
            name=op.f("uq_inference_prefetches_project_id_version_id_cluster_id"),
        ),
    )
    op.create_index(
        "ix_inference_prefetches_organization_id", "inference_prefetches", ["organization_id"]
    )


def downgrade() -> None:
    op.drop_table("inference_prefetches")
