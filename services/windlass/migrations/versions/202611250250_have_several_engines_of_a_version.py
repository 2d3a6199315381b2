"""Have several engines of a version.

Revision ID: 202611250250
Revises: 202611242259
Create Date: 2026-11-25 02:50:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611250250"
down_revision = "202611242259"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "inference_servings",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("version_id", sa.Text(), nullable=False),
        sa.Column("engine_version_id", sa.Text(), nullable=False),
        sa.Column("min_replicas", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("project_id", "model", name=op.f("pk_inference_servings")),
    )
    op.create_index(
        op.f("ix_inference_servings_version_id"), "inference_servings", ["version_id"], unique=False
    )
    op.add_column(
        "inference_engines", sa.Column("replica", sa.Integer(), server_default="0", nullable=False)
    )
    op.drop_index(
        op.f("uq_inference_engines_running"),
        table_name="inference_engines",
        postgresql_where="(desired = 'running'::text)",
    )
    op.create_index(
        "uq_inference_engines_running",
        "inference_engines",
        ["version_id", "replica"],
        unique=True,
        postgresql_where=sa.text("desired = 'running'"),
    )


def downgrade() -> None:
    # The scheduler of before tells their clusters.
    op.execute(
        "UPDATE inference_engines SET desired = 'deleted', generation = generation + 1 "
        "WHERE replica > 0"
    )
    op.drop_index(
        "uq_inference_engines_running",
        table_name="inference_engines",
        postgresql_where=sa.text("desired = 'running'"),
    )
    op.create_index(
        op.f("uq_inference_engines_running"),
        "inference_engines",
        ["version_id"],
        unique=True,
        postgresql_where="(desired = 'running'::text)",
    )
    op.drop_column("inference_engines", "replica")
    op.drop_index(op.f("ix_inference_servings_version_id"), table_name="inference_servings")
    op.drop_table("inference_servings")
