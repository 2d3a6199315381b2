"""Have adopted stacks that rank and score.

Revision ID: 202611282210
Revises: 202611280640
Create Date: 2026-11-28 22:10:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611282210"
down_revision = "202611280640"
branch_labels = None
depends_on = None
_TABLE = "inference_stacks"
_NAMES = ("rerank", "score")


def upgrade() -> None:
    for name in _NAMES:
        op.add_column(
            _TABLE, sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false())
        )


def downgrade() -> None:
    for name in _NAMES:
        op.drop_column(_TABLE, name)
