"""Usage by the hour.

Revision ID: 202611230515
Revises: 202611230505
Create Date: 2026-11-23 05:15:00.482911
"""

import sqlalchemy as sa
from alembic import op

revision = "202611230515"
down_revision = "202611230505"
branch_labels = None
depends_on = None


def upgrade() -> None:
    names = ("organization_id", "project_id", "user_id", "key_id", "model")
    op.create_table(
        "usage_hours",
        sa.Column("hour_ms", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in names),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("input_tokens", "output_tokens", "requests")
        ),
        sa.PrimaryKeyConstraint("hour_ms", *names, "kind", name=op.f("pk_usage_hours")),
    )
    op.create_index(
        op.f("ix_usage_hours_organization_id_hour_ms"),
        "usage_hours",
        ["organization_id", "hour_ms"],
    )
    op.create_index(op.f("ix_usage_records_at_ms"), "usage_records", ["at_ms"])


def downgrade() -> None:
    op.drop_index(op.f("ix_usage_records_at_ms"), table_name="usage_records")
    op.drop_table("usage_hours")
