"""Add what a version takes of the memory of the devices that serve it.

Revision ID: 202611260820
Revises: 202611252117
Create Date: 2026-11-26 08:20:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611260820"
down_revision = "202611252117"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "models_versions",
        sa.Column("footprint", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
    )


def downgrade() -> None:
    op.drop_column("models_versions", "footprint")
