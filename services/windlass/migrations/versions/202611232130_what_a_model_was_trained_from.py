"""Add the model that the training of a version began with.

Revision ID: 202611232130
Revises: 202611232105
Create Date: 2026-11-23 21:30:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611232130"
down_revision = "202611232105"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "models_versions", sa.Column("parent", sa.Text(), server_default="", nullable=False)
    )


def downgrade() -> None:
    op.drop_column("models_versions", "parent")
