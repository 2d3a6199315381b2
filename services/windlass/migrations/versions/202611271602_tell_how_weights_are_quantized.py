"""Tell how the weights of a version are quantized.

Revision ID: 202611271602
Revises: 202611271307
Create Date: 2026-11-27 16:02:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "202611271602"
down_revision = "202611271307"
branch_labels = None
depends_on = None

_TABLE = "models_versions"


def upgrade() -> None:
    op.add_column(_TABLE, sa.Column("quantization", JSONB(), nullable=True))


def downgrade() -> None:
    op.drop_column(_TABLE, "quantization")
