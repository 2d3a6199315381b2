"""Scale servings by how long requests wait, and by the GPUs that their engines use.

Revision ID: 202611270904
Revises: 202611270903
Create Date: 2026-11-27 09:04:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611270904"
down_revision = "202611270903"
branch_labels = None
depends_on = None

_SERVINGS, _LOADS = "inference_servings", "inference_loads"


def upgrade() -> None:
    for table, name, kind in (
        (_SERVINGS, "target_gpu", sa.Integer()),
        (_SERVINGS, "target_wait_seconds", sa.Integer()),
        (_LOADS, "in_line", sa.Integer()),
        (_LOADS, "line_seconds", sa.Double()),
        (_LOADS, "in_background", sa.Integer()),
    ):
        op.add_column(table, sa.Column(name, kind, server_default="0", nullable=False))


def downgrade() -> None:
    for name in ("in_line", "line_seconds", "in_background"):
        op.drop_column(_LOADS, name)
    for name in ("target_gpu", "target_wait_seconds"):
        op.drop_column(_SERVINGS, name)
