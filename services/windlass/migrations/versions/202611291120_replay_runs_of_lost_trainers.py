"""replay runs of lost trainers.

Revision ID: 202611291120
Revises: 202611291010
Create Date: 2026-11-29 11:20:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611291120"
down_revision = "202611291010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table, name in (
        ("tuning_runs", "places"),
        ("tuning_runs", "state_place"),
        ("tuning_operations", "place"),
    ):
        op.add_column(table, sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    op.create_index(
        "ix_tuning_operations_places",
        "tuning_operations",
        ["run_id", "place"],
        unique=False,
        postgresql_where=sa.text("place > 0"),
    )
    op.create_index(
        "ix_tuning_operations_bodies",
        "tuning_operations",
        ["finished_at"],
        unique=False,
        postgresql_where=sa.text("state = 'expired' AND (body IS NOT NULL OR body_key <> '')"),
    )


def downgrade() -> None:
    op.drop_index("ix_tuning_operations_bodies", table_name="tuning_operations")
    op.drop_index("ix_tuning_operations_places", table_name="tuning_operations")
    for table, name in (
        ("tuning_operations", "place"),
        ("tuning_runs", "state_place"),
        ("tuning_runs", "places"),
    ):
        op.drop_column(table, name)
