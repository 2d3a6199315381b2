"""Serve on several nodes.

Revision ID: 202611270902
Revises: 202611270605
Create Date: 2026-11-27 09:02:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611270902"
down_revision = "202611270605"
branch_labels = None
depends_on = None

_TABLES = ("inference_engines", "inference_servings")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("nodes", sa.Integer(), server_default="0", nullable=False))


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "nodes")
