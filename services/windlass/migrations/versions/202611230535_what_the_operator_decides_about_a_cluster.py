"""Store the operator's policy for a cluster.

Until now a cluster was what its agent said last, and every project used machines: both stay
as they are for those that are there, until the operator changes them.

Revision ID: 202611230535
Revises: 202611230515
Create Date: 2026-11-23 05:35:11.402017
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611230535"
down_revision = "202611230515"
branch_labels = None
depends_on = None

_CLUSTERS = "clusters_clusters"


def upgrade() -> None:
    texts = postgresql.ARRAY(sa.Text())
    for column in (
        sa.Column("reported_executor", sa.Text(), server_default="", nullable=False),
        sa.Column("roles", texts, server_default="{jobs,engines}", nullable=False),
        sa.Column("shared", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("addresses", texts, server_default="{}", nullable=False),
        sa.Column("max_slots", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_engine_slots", sa.Integer(), server_default="0", nullable=False),
        sa.Column("run_folder", sa.Text(), server_default="", nullable=False),
    ):
        op.add_column(_CLUSTERS, column)
    op.execute(
        "UPDATE clusters_clusters SET reported_executor = executor, "
        "shared = (executor = 'process'), "
        "executor = CASE executor WHEN 'process' THEN 'process' ELSE 'kubernetes' END"
    )
    op.alter_column(_CLUSTERS, "executor", server_default="kubernetes")


def downgrade() -> None:
    op.alter_column(_CLUSTERS, "executor", server_default="")
    op.execute("UPDATE clusters_clusters SET executor = reported_executor")
    for name in (
        "run_folder", "max_engine_slots", "max_slots", "addresses", "shared", "roles",
        "reported_executor",
    ):  # fmt: skip
        op.drop_column(_CLUSTERS, name)
