"""Find runs whose newest weights may have to be published, and these weights, by an index.

Revision ID: 202611300200
Revises: 202611300150
Create Date: 2026-11-30 02:00:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611300200"
down_revision = "202611300150"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "tuning_runs",
        sa.Column("published_places", sa.BigInteger(), server_default="-1", nullable=False),
    )
    op.create_index(
        "ix_tuning_runs_unpublished",
        "tuning_runs",
        ["last_request_at"],
        postgresql_where=sa.text("is_full AND places > published_places"),
    )
    op.create_index(
        "ix_tuning_checkpoints_newest",
        "tuning_checkpoints",
        ["run_id", "place", "created_at", "id"],
        postgresql_where=sa.text("state = 'ready' AND is_for_sampler"),
    )


def downgrade() -> None:
    op.drop_index("ix_tuning_checkpoints_newest", "tuning_checkpoints")
    op.drop_index("ix_tuning_runs_unpublished", "tuning_runs")
    op.drop_column("tuning_runs", "published_places")
