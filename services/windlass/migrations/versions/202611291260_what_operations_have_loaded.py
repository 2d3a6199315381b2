"""what operations have loaded.

Revision ID: 202611291260
Revises: 202611291230
Create Date: 2026-11-29 13:00:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611291260"
down_revision = "202611291230"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "tuning_operations",
        sa.Column("loaded_checkpoint_id", sa.Text(), server_default="", nullable=False),
    )


def downgrade() -> None:
    op.drop_column("tuning_operations", "loaded_checkpoint_id")
