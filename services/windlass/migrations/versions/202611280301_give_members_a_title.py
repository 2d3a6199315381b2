"""Give members a title beside their id.

Revision ID: 202611280301
Revises: 202611272340
Create Date: 2026-11-28 03:01:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611280301"
down_revision = "202611272340"
branch_labels = None
depends_on = None


def upgrade() -> None:
    title = sa.Column("title", sa.Text(), server_default="", nullable=False)
    op.add_column("users_members", title)


def downgrade() -> None:
    op.drop_column("users_members", "title")
