"""How engines run a model.

Revision ID: 202611251330
Revises: 202611250250
Create Date: 2026-11-25 13:30:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611251330"
down_revision = "202611250250"
branch_labels = None
depends_on = None

_TABLES = ("inference_engines", "inference_servings")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(
            table,
            sa.Column(
                "arguments",
                postgresql.JSONB(astext_type=sa.Text()),
                server_default="{}",
                nullable=False,
            ),
        )
        op.add_column(table, sa.Column("gpus", sa.Integer(), server_default="0", nullable=False))
    op.add_column(
        "inference_servings", sa.Column("engine", sa.Text(), server_default="", nullable=False)
    )


def downgrade() -> None:
    op.drop_column("inference_servings", "engine")
    # The gateway of before checks no request for these, and writes no salt.
    op.execute(
        "UPDATE inference_engines SET desired = 'deleted', generation = generation + 1 "
        "WHERE engine <> 'builtin'"
    )
    # The scheduler of before keeps none that run on demand alone.
    op.execute("DELETE FROM inference_servings WHERE min_replicas = 0")
    for table in _TABLES:
        op.drop_column(table, "gpus")
        op.drop_column(table, "arguments")
