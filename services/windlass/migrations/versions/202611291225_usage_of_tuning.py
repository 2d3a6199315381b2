"""usage of tuning.

Revision ID: 202611291225
Revises: 202611291220
Create Date: 2026-11-29 12:25:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611291225"
down_revision = "202611291220"
branch_labels = None
depends_on = None

TABLE = "tuning_owed_usage"
INDEX = f"ix_{TABLE}_project_id"
MEASURED = ("usage_records", "usage_hours", "tuning_runs")


def upgrade() -> None:
    for table in MEASURED:
        op.add_column(
            table, sa.Column("device_time_ms", sa.BigInteger(), server_default="0", nullable=False)
        )
    for name in ("user_id", "key_id"):
        op.add_column(
            "tuning_operations", sa.Column(name, sa.Text(), server_default="", nullable=False)
        )
    op.create_table(
        TABLE,
        sa.Column("id", sa.Text(), nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("organization_id", "project_id", "user_id", "key_id", "model")
        ),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("input_tokens", "output_tokens", "device_time_ms", "at_ms")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{TABLE}")),
    )
    op.create_index(op.f(INDEX), TABLE, ["project_id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f(INDEX), table_name=TABLE)
    op.drop_table(TABLE)
    for name in ("key_id", "user_id"):
        op.drop_column("tuning_operations", name)
    for table in reversed(MEASURED):
        op.drop_column(table, "device_time_ms")
