"""Note a change of all of an organization's keys by one row.

Revision ID: 202611290940
Revises: 202611290430
Create Date: 2026-11-29 09:40:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611290940"
down_revision = "202611290430"
branch_labels = None
depends_on = None
_TABLE = "users_key_changes"


def upgrade() -> None:
    op.alter_column(_TABLE, "key_id", server_default="")
    op.add_column(
        _TABLE, sa.Column("organization_id", sa.Text(), nullable=False, server_default="")
    )


def downgrade() -> None:
    op.execute("DELETE FROM users_key_changes WHERE key_id = ''")
    op.drop_column(_TABLE, "organization_id")
    op.alter_column(_TABLE, "key_id", server_default=None)
