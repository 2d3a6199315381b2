"""Add serving stacks that others run and their models, and formats of models.

Revision ID: 202611261700
Revises: 202611260820
Create Date: 2026-11-26 17:00:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611261700"
down_revision = "202611260820"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "inference_stacks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("dialect", sa.Text(), nullable=False),
        sa.Column("ca", sa.Text(), nullable=False),
        sa.Column("sealed_key", sa.LargeBinary(), nullable=False),
        sa.Column("max_concurrency", sa.Integer(), nullable=False),
        sa.Column("context_length", sa.Integer(), nullable=False),
        sa.Column("embeddings", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_inference_stacks")),
    )
    op.add_column(
        "models_versions",
        sa.Column(
            "formats",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default="{}",
            nullable=False,
        ),
    )
    for name in ("stack", "upstream"):
        column = sa.Column(name, sa.Text(), server_default="", nullable=False)
        op.add_column("models_versions", column)
    op.create_index(
        "ix_models_versions_stack",
        "models_versions",
        ["stack"],
        postgresql_where=sa.text("stack <> ''"),
    )


def downgrade() -> None:
    op.drop_index("ix_models_versions_stack", table_name="models_versions")
    for name in ("upstream", "stack", "formats"):
        op.drop_column("models_versions", name)
    op.drop_table("inference_stacks")
