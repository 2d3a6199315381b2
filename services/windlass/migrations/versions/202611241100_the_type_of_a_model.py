"""Add the `model_type` of a version, for warnings about types that nothing loads.

Revision ID: 202611241100
Revises: 202611240030
Create Date: 2026-11-24 11:00:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611241100"
down_revision = "202611240030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "models_versions", sa.Column("model_type", sa.Text(), server_default="", nullable=False)
    )


def downgrade() -> None:
    op.drop_column("models_versions", "model_type")
