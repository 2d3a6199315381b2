"""Guess tokens of a model by a smaller one.

Revision ID: 202611271304
Revises: 202611271303
Create Date: 2026-11-27 13:04:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611271304"
down_revision = "202611271303"
branch_labels = None
depends_on = None

_TABLES = ("inference_servings", "inference_engines", "inference_prefetches")


def upgrade() -> None:
    for table in _TABLES:
        column = sa.Column("draft_version_id", sa.Text(), server_default="", nullable=False)
        op.add_column(table, column)


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "draft_version_id")
