"""Count open event streams over all processes.

Revision ID: 202611242259
Revises: 202611242220
Create Date: 2026-11-24 22:59:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611242259"
down_revision = "202611242220"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "jobs_stream_holders",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs_stream_holders")),
    )
    op.create_table(
        "jobs_streams",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs_streams")),
    )
    op.create_index("ix_jobs_streams_holder", "jobs_streams", ["holder"])
    op.create_index(
        "ix_jobs_streams_organization_id_project_id",
        "jobs_streams",
        ["organization_id", "project_id"],
    )


def downgrade() -> None:
    op.drop_table("jobs_streams")
    op.drop_table("jobs_stream_holders")
