"""Allow networks of organizations.

Revision ID: 202611290120
Revises: 202611282210
Create Date: 2026-11-29 01:20:20.231140
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611290120"
down_revision = "202611282210"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "users_allowed_networks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("networks", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users_allowed_networks")),
    )


def downgrade() -> None:
    # The release before knows no list: an operator whose tenants need theirs does not go back.
    op.drop_table("users_allowed_networks")
