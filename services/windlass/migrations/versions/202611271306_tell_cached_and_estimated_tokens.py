"""Tell cached, reasoning and estimated tokens.

Revision ID: 202611271306
Revises: 202611270904
Create Date: 2026-11-27 13:06:00.204417
"""

import sqlalchemy as sa
from alembic import op

revision = "202611271306"
down_revision = "202611270904"
branch_labels = None
depends_on = None

_TOKENS = ("input_cached_tokens", "output_reasoning_tokens")


def upgrade() -> None:
    for table, more in (("usage_records", ()), ("usage_hours", ("estimated_requests",))):
        for name in (*_TOKENS, *more):
            column = sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
            op.add_column(table, column)
    estimated = sa.Column("estimated", sa.Boolean(), nullable=False, server_default=sa.false())
    op.add_column("usage_records", estimated)


def downgrade() -> None:
    op.drop_column("usage_records", "estimated")
    for table, more in (("usage_records", ()), ("usage_hours", ("estimated_requests",))):
        for name in (*_TOKENS, *more):
            op.drop_column(table, name)
