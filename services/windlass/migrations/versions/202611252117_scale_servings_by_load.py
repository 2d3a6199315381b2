"""Scale servings by load.

Revision ID: 202611252117
Revises: 202611251330
Create Date: 2026-11-25 21:17:36.223438
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611252117"
down_revision = "202611251330"
branch_labels = None
depends_on = None

_COLUMNS = ("max_replicas", "target_requests")


def upgrade() -> None:
    op.create_table(
        "inference_loads",
        sa.Column("reporter", sa.Text(), nullable=False),
        sa.Column("engine_version_id", sa.Text(), nullable=False),
        sa.Column("open_requests", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("reporter", "engine_version_id", name=op.f("pk_inference_loads")),
    )
    op.create_index(op.f("ix_inference_loads_at"), "inference_loads", ["at"], unique=False)
    for name in _COLUMNS:
        column = sa.Column(name, sa.Integer(), server_default="0", nullable=False)
        op.add_column("inference_servings", column)
    schedule = sa.Column(
        "schedule",
        postgresql.JSONB(astext_type=sa.Text()),
        server_default="[]",
        nullable=False,
    )
    op.add_column("inference_servings", schedule)


def downgrade() -> None:
    op.drop_column("inference_servings", "schedule")
    for name in _COLUMNS:
        op.drop_column("inference_servings", name)
    op.drop_index(op.f("ix_inference_loads_at"), table_name="inference_loads")
    op.drop_table("inference_loads")
