"""what clusters observed.

Revision ID: 202611211938
Revises: 202611211935
Create Date: 2026-11-21 19:38:58.001977
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611211938"
down_revision = "202611211935"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "jobs_jobs",
        sa.Column("observed", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
    )


def downgrade() -> None:
    op.drop_column("jobs_jobs", "observed")
