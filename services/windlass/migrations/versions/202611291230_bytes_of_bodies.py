"""bytes of bodies.

Revision ID: 202611291230
Revises: 202611291225
Create Date: 2026-11-29 12:30:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611291230"
down_revision = "202611291225"
branch_labels = None
depends_on = None

INDEX = "ix_tuning_operations_body_bytes"


def upgrade() -> None:
    op.add_column(
        "tuning_operations",
        sa.Column("body_bytes", sa.BigInteger(), server_default="0", nullable=False),
    )
    op.create_index(
        INDEX,
        "tuning_operations",
        ["project_id"],
        unique=False,
        postgresql_include=["body_bytes"],
        postgresql_where=sa.text("body_bytes > 0"),
    )


def downgrade() -> None:
    op.drop_index(INDEX, table_name="tuning_operations")
    op.drop_column("tuning_operations", "body_bytes")
