"""prove runs by their logs.

Revision ID: 202611291220
Revises: 202611291200
Create Date: 2026-11-29 12:20:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611291220"
down_revision = "202611291200"
branch_labels = None
depends_on = None

DIGESTS = ("result_digest", "weights_digest")


def upgrade() -> None:
    for name in DIGESTS:
        op.add_column("tuning_operations", sa.Column(name, sa.LargeBinary(), nullable=True))
    op.add_column(
        "tuning_checkpoints",
        sa.Column("place", sa.BigInteger(), server_default="0", nullable=False),
    )


def downgrade() -> None:
    op.drop_column("tuning_checkpoints", "place")
    for name in reversed(DIGESTS):
        op.drop_column("tuning_operations", name)
