"""Models that come from a hub.

Revision ID: 202611221134
Revises: 202611220341
Create Date: 2026-11-22 11:34:32.271668
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611221134"
down_revision = "202611220341"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "models_fetches",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("is_global", sa.Boolean(), nullable=False),
        sa.Column("repository", sa.Text(), nullable=False),
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("commit", sa.Text(), server_default="", nullable=False),
        sa.Column("version_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("manifest", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("bytes_done", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("bytes_total", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error_code", sa.Text(), server_default="", nullable=False),
        sa.Column("error_message", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models_fetches")),
    )
    op.create_index(
        "ix_models_fetches_open",
        "models_fetches",
        ["id"],
        unique=False,
        postgresql_where=sa.text(
            "state IN ('queued', 'running') OR (state <> 'succeeded' AND version_id <> '')"
        ),
    )
    op.create_index(
        "ix_models_fetches_project",
        "models_fetches",
        ["project_id", "created_at", "id"],
        unique=False,
    )


def downgrade() -> None:
    op.drop_index("ix_models_fetches_project", table_name="models_fetches")
    op.drop_index(
        "ix_models_fetches_open",
        table_name="models_fetches",
        postgresql_where=sa.text(
            "state IN ('queued', 'running') OR (state <> 'succeeded' AND version_id <> '')"
        ),
    )
    op.drop_table("models_fetches")
