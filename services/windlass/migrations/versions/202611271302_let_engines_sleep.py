"""Let engines sleep that nobody asks for.

Revision ID: 202611271302
Revises: 202611270904
Create Date: 2026-11-27 13:02:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611271302"
down_revision = "202611270904"
branch_labels = None
depends_on = None

_ENGINES, _SERVINGS = "inference_engines", "inference_servings"
_STATES = ("sleeps", "asleep")


def upgrade() -> None:
    for name in _STATES:
        op.add_column(
            _ENGINES, sa.Column(name, sa.Boolean(), server_default=sa.false(), nullable=False)
        )
    op.add_column(
        _SERVINGS, sa.Column("sleep_seconds", sa.Integer(), server_default="0", nullable=False)
    )


def downgrade() -> None:
    op.drop_column(_SERVINGS, "sleep_seconds")
    for name in _STATES:
        op.drop_column(_ENGINES, name)
