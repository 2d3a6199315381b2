"""Tell cached, reasoning and estimated tokens.

Revision ID: 202611271306
Revises: 202611271304
Create Date: 2026-11-27 13:06:00.204417
"""

import sqlalchemy as sa
from alembic import op

revision = "202611271306"
down_revision = "202611271304"
branch_labels = None
depends_on = None

_TOKENS = ("input_cached_tokens", "output_reasoning_tokens")
_COUNTS = {"usage_records": _TOKENS, "usage_hours": (*_TOKENS, "estimated_requests")}


def upgrade() -> None:
    for table, names in _COUNTS.items():
        for name in names:
            op.add_column(
                table, sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
            )
    op.add_column(
        "usage_records",
        sa.Column("estimated", sa.Boolean(), nullable=False, server_default=sa.false()),
    )


def downgrade() -> None:
    op.drop_column("usage_records", "estimated")
    for table, names in _COUNTS.items():
        for name in names:
            op.drop_column(table, name)
