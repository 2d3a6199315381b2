"""runs of all parameters.

Revision ID: 202611291400
Revises: 202611291260
Create Date: 2026-11-29 14:00:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611291400"
down_revision = "202611291260"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "tuning_runs",
        sa.Column("is_full", sa.Boolean(), server_default="false", nullable=False),
    )
    op.create_index(
        "ix_tuning_runs_full",
        "tuning_runs",
        ["lease_until"],
        postgresql_where=sa.text("is_full"),
    )


def downgrade() -> None:
    op.drop_index("ix_tuning_runs_full", table_name="tuning_runs")
    op.drop_column("tuning_runs", "is_full")
