"""checkpoints leave their runs.

Revision ID: 202611291200
Revises: 202611291135
Create Date: 2026-11-29 12:00:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611291200"
down_revision = "202611291135"
branch_labels = None
depends_on = None

NAMES = "uq_tuning_checkpoints_names"
_NAMED = sa.text("state = 'ready' AND name <> ''")


def upgrade() -> None:
    _add_columns()
    op.drop_index(NAMES, table_name="tuning_checkpoints", postgresql_where=_NAMED)
    op.create_index(
        NAMES,
        "tuning_checkpoints",
        ["run_id", "is_for_sampler", "is_external", "name"],
        unique=True,
        postgresql_where=_NAMED,
    )
    op.create_index(
        "ix_tuning_operations_ended",
        "tuning_operations",
        ["sampler_id", "ended"],
        postgresql_where=sa.text("ended > 0"),
    )
    _create_tables()


def downgrade() -> None:
    op.drop_table("tuning_loans")
    op.drop_table("tuning_losses")
    op.drop_index("ix_tuning_operations_ended", table_name="tuning_operations")
    # They would share a name with a sampler's.
    op.execute("DELETE FROM tuning_checkpoints WHERE is_external")
    op.drop_index(NAMES, table_name="tuning_checkpoints", postgresql_where=_NAMED)
    op.create_index(
        NAMES,
        "tuning_checkpoints",
        ["run_id", "is_for_sampler", "name"],
        unique=True,
        postgresql_where=_NAMED,
    )
    op.drop_column("tuning_samplers", "ended")
    op.drop_column("tuning_operations", "ended")
    for name in ("files", "is_published", "is_external"):
        op.drop_column("tuning_checkpoints", name)


def _add_columns() -> None:
    for name in ("is_external", "is_published"):
        op.add_column(
            "tuning_checkpoints",
            sa.Column(name, sa.Boolean(), server_default="false", nullable=False),
        )
    op.add_column(
        "tuning_checkpoints",
        sa.Column("files", postgresql.JSONB(), server_default="{}", nullable=False),
    )
    for table in ("tuning_operations", "tuning_samplers"):
        op.add_column(
            table, sa.Column("ended", sa.BigInteger(), server_default="0", nullable=False)
        )


def _create_tables() -> None:
    op.create_table(
        "tuning_losses",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuning_losses")),
    )
    for column in ("session_id", "project_id"):
        op.create_index(op.f(f"ix_tuning_losses_{column}"), "tuning_losses", [column])
    op.create_table(
        "tuning_loans",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_tuning_loans")),
    )
    for column in ("expires_at", "project_id"):
        op.create_index(op.f(f"ix_tuning_loans_{column}"), "tuning_loans", [column])
