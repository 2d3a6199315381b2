"""Leases of clusters: pods that hold devices, and whose seats are on them.

Revision ID: 202611300300
Revises: 202611300200
Create Date: 2026-11-30 03:00:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611300300"
down_revision = "202611300200"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "tuning_pods", sa.Column("lease_id", sa.Text(), server_default="", nullable=False)
    )
    op.create_index("ix_tuning_pods_lease_id", "tuning_pods", ["lease_id"])
    op.create_index(
        "ix_tuning_pods_one_lease",
        "tuning_pods",
        ["project_id", "cluster_id"],
        unique=True,
        postgresql_where=sa.text("role = 'lease' AND desired = 'running'"),
    )
    op.add_column("tuning_seats", sa.Column("owner", sa.Text(), server_default="", nullable=False))
    op.create_index("ix_tuning_seats_owner", "tuning_seats", ["owner"])


def downgrade() -> None:
    op.drop_index("ix_tuning_seats_owner", "tuning_seats")
    op.drop_column("tuning_seats", "owner")
    op.drop_index("ix_tuning_pods_one_lease", "tuning_pods")
    op.drop_index("ix_tuning_pods_lease_id", "tuning_pods")
    op.drop_column("tuning_pods", "lease_id")
