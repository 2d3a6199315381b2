"""Add the time at which a row of the jobs' outbox was made.

Revision ID: 202611240020
Revises: 202611232130
Create Date: 2026-11-24 00:20:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611240020"
down_revision = "202611232130"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "jobs_outbox",
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
    )


def downgrade() -> None:
    op.drop_column("jobs_outbox", "created_at")
