"""Scale servings by how long requests wait, and by the GPUs that their engines use.

Revision ID: 202611270904
Revises: 202611270605
Create Date: 2026-11-27 09:04:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611270904"
down_revision = "202611270605"
branch_labels = None
depends_on = None

_COLUMNS = {
    "inference_servings": {"target_gpu": sa.Integer, "target_wait_seconds": sa.Integer},
    "inference_loads": {
        "in_line": sa.Integer, "line_seconds": sa.Double, "in_background": sa.Integer,
    },
}  # fmt: skip


def upgrade() -> None:
    for table, columns in _COLUMNS.items():
        for name, kind in columns.items():
            op.add_column(table, sa.Column(name, kind(), server_default="0", nullable=False))


def downgrade() -> None:
    for table, columns in _COLUMNS.items():
        for name in columns:
            op.drop_column(table, name)
