"""Serve where and how long.

Revision ID: 202611270600
Revises: 202611270140
Create Date: 2026-11-27 06:00:12.412817
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611270600"
down_revision = "202611270140"
branch_labels = None
depends_on = None


def upgrade() -> None:
    idle = sa.Column("idle_seconds", sa.Integer(), server_default="0", nullable=False)
    clusters = sa.Column(
        "clusters",
        postgresql.JSONB(astext_type=sa.Text()),
        server_default="{}",
        nullable=False,
    )
    for column in (idle, clusters):
        op.add_column("inference_servings", column)


def downgrade() -> None:
    for name in ("clusters", "idle_seconds"):
        op.drop_column("inference_servings", name)
