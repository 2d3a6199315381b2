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
    "inference_servings": ("target_gpu", "target_wait"),
    "inference_loads": ("in_line", "line_ms", "in_background"),
}


def upgrade() -> None:
    for table, names in _COLUMNS.items():
        for name in names:
            column = sa.Column(name, sa.Integer(), server_default="0", nullable=False)
            op.add_column(table, column)


def downgrade() -> None:
    for table, names in _COLUMNS.items():
        for name in names:
            op.drop_column(table, name)
