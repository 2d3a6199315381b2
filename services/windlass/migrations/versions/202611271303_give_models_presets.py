"""Give models the presets of their families.

Revision ID: 202611271303
Revises: 202611271302
Create Date: 2026-11-27 13:03:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "202611271303"
down_revision = "202611271302"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models_versions", sa.Column("preset", JSONB(none_as_null=True)))


def downgrade() -> None:
    op.drop_column("models_versions", "preset")
