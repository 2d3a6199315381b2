"""Scale servings by the cache that their engines use.

Revision ID: 202611270605
Revises: 202611270600
Create Date: 2026-11-27 06:05:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611270605"
down_revision = "202611270600"
branch_labels = None
depends_on = None


def upgrade() -> None:
    column = sa.Column("target_cache", sa.Integer(), server_default="90", nullable=False)
    op.add_column("inference_servings", column)


def downgrade() -> None:
    op.drop_column("inference_servings", "target_cache")
