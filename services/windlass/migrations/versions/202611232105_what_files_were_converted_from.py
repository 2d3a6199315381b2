"""Keep what a file was converted from.

Revision ID: 202611232105
Revises: 202611232030
Create Date: 2026-11-23 21:05:12.118402
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611232105"
down_revision = "202611232030"
branch_labels = None
depends_on = None

_TABLES = ("files_files", "files_uploads")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("provenance", postgresql.JSONB(), nullable=True))


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "provenance")
