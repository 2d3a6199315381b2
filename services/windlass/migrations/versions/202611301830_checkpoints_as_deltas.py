"""Send checkpoints of engines as deltas, and say how many bytes came.

Revision ID: 202611301830
Revises: 202611300300
Create Date: 2026-11-30 18:30:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611301830"
down_revision = "202611300300"
branch_labels = None
depends_on = None

_TABLE = "inference_trainings"
_BYTES = ("weight_bytes", "uploaded_bytes")


def upgrade() -> None:
    deltas = sa.Column("deltas", postgresql.JSONB(), server_default="{}", nullable=False)
    op.add_column(_TABLE, deltas)
    for name in _BYTES:
        op.add_column(_TABLE, sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    for name in (*_BYTES, "deltas"):
        op.drop_column(_TABLE, name)
