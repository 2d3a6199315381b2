"""Measure a held-out set while an engine is trained.

Revision ID: 202611300150
Revises: 202611300140
Create Date: 2026-11-30 01:50:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611300150"
down_revision = "202611300140"
branch_labels = None
depends_on = None

_MEASURED = ("held_out_loss", "kl")


def upgrade() -> None:
    op.add_column("inference_trainings", sa.Column("kept_steps", sa.BigInteger()))
    for name in _MEASURED:
        op.add_column("inference_training_steps", sa.Column(name, sa.Double()))


def downgrade() -> None:
    for name in _MEASURED:
        op.drop_column("inference_training_steps", name)
    op.drop_column("inference_trainings", "kept_steps")
