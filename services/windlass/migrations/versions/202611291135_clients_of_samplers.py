"""clients of samplers.

Revision ID: 202611291135
Revises: 202611291120
Create Date: 2026-11-29 11:35:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611291135"
down_revision = "202611291120"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "tuning_samplers",
        sa.Column("clients", sa.BigInteger(), server_default="0", nullable=False),
    )


def downgrade() -> None:
    op.drop_column("tuning_samplers", "clients")
