"""Runs of tuning have engines compute, and hold them meanwhile.

Revision ID: 202611301900
Revises: 202611301830
Create Date: 2026-11-30 19:00:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611301900"
down_revision = "202611301830"
branch_labels = None
depends_on = None

_TRAININGS, _HELD = "inference_trainings", "inference_held_engines"


def upgrade() -> None:
    for column in (
        sa.Column("run_id", sa.Text(), server_default="", nullable=False),
        sa.Column("output_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("outputs", sa.LargeBinary(), server_default="", nullable=False),
    ):
        op.add_column(_TRAININGS, column)
    op.create_index(
        "ix_inference_trainings_runs",
        _TRAININGS,
        ["run_id", "created_at"],
        postgresql_where=sa.text("run_id <> ''"),
    )
    op.create_table(
        _HELD,
        sa.Column("version_id", sa.Text(), primary_key=True),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
    )
    for name in ("project_id", "run_id"):
        op.create_index(f"ix_{_HELD}_{name}", _HELD, [name])


def downgrade() -> None:
    op.drop_table(_HELD)
    op.drop_index("ix_inference_trainings_runs", _TRAININGS)
    for name in ("outputs", "output_bytes", "run_id"):
        op.drop_column(_TRAININGS, name)
