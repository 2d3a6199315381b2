"""Place adapters by the requests that gateways have open or hold for them.

Revision ID: 202611271307
Revises: 202611271306
Create Date: 2026-11-27 13:07:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "202611271307"
down_revision = "202611271306"
branch_labels = None
depends_on = None

_TABLE = "inference_adapter_loads"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("reporter", sa.Text(), nullable=False),
        sa.Column("requests", JSONB(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("reporter", name=op.f(f"pk_{_TABLE}")),
    )
    op.create_index(op.f(f"ix_{_TABLE}_at"), _TABLE, ["at"])


def downgrade() -> None:
    op.drop_table(_TABLE)
