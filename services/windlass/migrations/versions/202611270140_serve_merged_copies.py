"""Add what adapters ask of engines, and the merged copies of those.

Revision ID: 202611270140
Revises: 202611261700
Create Date: 2026-11-27 01:40:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611270140"
down_revision = "202611261700"
branch_labels = None
depends_on = None

_INDEXES = {"merged_of": "merged_of", "merged": "merged_version_id"}


def upgrade() -> None:
    op.add_column(
        "models_versions",
        sa.Column("adapter", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
    )
    for name, column in _INDEXES.items():
        text = sa.Column(column, sa.Text(), server_default="", nullable=False)
        op.add_column("models_versions", text)
        op.create_index(
            f"ix_models_versions_{name}",
            "models_versions",
            [column],
            postgresql_where=sa.text(f"{column} <> ''"),
        )


def downgrade() -> None:
    for name, column in _INDEXES.items():
        op.drop_index(f"ix_models_versions_{name}", table_name="models_versions")
        op.drop_column("models_versions", column)
    op.drop_column("models_versions", "adapter")
