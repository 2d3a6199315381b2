"""Say why engines are where they are, and which adapters have engines of their own.

Revision ID: 202611271604
Revises: 202611271603
Create Date: 2026-11-27 16:01:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611271604"
down_revision = "202611271603"
branch_labels = None
depends_on = None

_ENGINES, _SERVINGS = "inference_engines", "inference_servings"


def upgrade() -> None:
    op.add_column(
        _ENGINES, sa.Column("placement_reason", sa.Text(), server_default="", nullable=False)
    )
    op.add_column(
        _SERVINGS, sa.Column("dedicated", sa.Boolean(), server_default=sa.false(), nullable=False)
    )


def downgrade() -> None:
    op.drop_column(_SERVINGS, "dedicated")
    op.drop_column(_ENGINES, "placement_reason")
