"""Let organizations ask again who somebody is before dangerous steps.

Revision ID: 202611290121
Revises: 202611290120
Create Date: 2026-11-29 01:20:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611290121"
down_revision = "202611290120"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "users_sign_in_policies",
        sa.Column("fresh_max_age", sa.BigInteger(), nullable=False, server_default="0"),
    )


def downgrade() -> None:
    op.drop_column("users_sign_in_policies", "fresh_max_age")
