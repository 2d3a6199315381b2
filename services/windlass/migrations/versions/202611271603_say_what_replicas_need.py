"""Say what replicas need: their accelerator, their memory, and their priority.

Revision ID: 202611271603
Revises: 202611271602
Create Date: 2026-11-27 16:03:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611271603"
down_revision = "202611271602"
branch_labels = None
depends_on = None

_TABLES = ("inference_servings", "inference_engines")


def upgrade() -> None:
    for table in _TABLES:
        for name, kind, usual in (
            ("accelerator", sa.Text(), ""),
            ("memory_bytes", sa.BigInteger(), "0"),
            ("priority", sa.Text(), "normal"),
        ):
            op.add_column(table, sa.Column(name, kind, nullable=False, server_default=usual))


def downgrade() -> None:
    for table in _TABLES:
        for name in ("accelerator", "memory_bytes", "priority"):
            op.drop_column(table, name)
