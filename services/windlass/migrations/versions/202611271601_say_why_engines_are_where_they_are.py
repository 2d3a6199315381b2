"""Say why engines are where they are.

Revision ID: 202611271601
Revises: 202611271307
Create Date: 2026-11-27 16:01:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611271601"
down_revision = "202611271307"
branch_labels = None
depends_on = None

_TABLE, _COLUMN = "inference_engines", "placement_reason"


def upgrade() -> None:
    op.add_column(_TABLE, sa.Column(_COLUMN, sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    op.drop_column(_TABLE, _COLUMN)
