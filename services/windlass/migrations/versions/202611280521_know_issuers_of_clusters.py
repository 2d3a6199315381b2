"""Know who signs the tokens of clusters' service accounts.

Revision ID: 202611280521
Revises: 202611280520
Create Date: 2026-11-28 06:05:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611280521"
down_revision = "202611280520"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "clusters_issuers",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("jwks", sa.Text(), nullable=False),
        sa.Column(
            "reported_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("cluster_id", name=op.f("pk_clusters_issuers")),
    )


def downgrade() -> None:
    op.drop_table("clusters_issuers")
