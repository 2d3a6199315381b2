"""Add what the evaluation of a job's model came to.

Revision ID: 202611240030
Revises: 202611240020
Create Date: 2026-11-24 00:30:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611240030"
down_revision = "202611240020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "jobs_jobs", sa.Column("evaluation", postgresql.JSONB(none_as_null=True), nullable=True)
    )


def downgrade() -> None:
    op.drop_column("jobs_jobs", "evaluation")
