"""versions of weights that full-parameter runs publish, and engines that follow them.

Revision ID: 202611300120
Revises: 202611300110
Create Date: 2026-11-30 01:20:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611300120"
down_revision = "202611300110"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tuning_versions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_id", sa.Text(), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("parent", sa.BigInteger()),
        sa.Column("base_weights", sa.Text(), server_default="", nullable=False),
        sa.Column("size", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("sha256", sa.Text(), server_default="", nullable=False),
        sa.Column("manifest_size", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("manifest_sha256", sa.Text(), server_default="", nullable=False),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("lease_owner", sa.Text()),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuning_versions")),
        sa.UniqueConstraint("run_id", "version", name=op.f("uq_tuning_versions_run_id_version")),
    )
    op.create_index(op.f("ix_tuning_versions_project_id"), "tuning_versions", ["project_id"])
    op.create_index(
        "ix_tuning_versions_kept",
        "tuning_versions",
        ["run_id"],
        postgresql_where=sa.text("state <> 'gone'"),
    )
    for table in ("inference_servings", "inference_engines"):
        op.add_column(table, sa.Column("follow", sa.Text(), server_default="", nullable=False))
    op.add_column(
        "inference_engines",
        sa.Column("followed_version", sa.BigInteger(), server_default="0", nullable=False),
    )


def downgrade() -> None:
    op.drop_column("inference_engines", "followed_version")
    for table in ("inference_engines", "inference_servings"):
        op.drop_column(table, "follow")
    op.drop_table("tuning_versions")
