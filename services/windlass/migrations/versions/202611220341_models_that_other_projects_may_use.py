"""Models that other projects may use.

Revision ID: 202611220341
Revises: 202611220338
Create Date: 2026-11-22 03:41:21.684768
"""

import sqlalchemy as sa
from alembic import op

revision = "202611220341"
down_revision = "202611220338"
branch_labels = None
depends_on = None

_INDEX = "uq_models_models_tuned"
_TUNED = "name LIKE 'ft:%' AND NOT deleted"


def upgrade() -> None:
    op.add_column(
        "models_models", sa.Column("grant_id", sa.Text(), server_default="", nullable=False)
    )
    op.add_column(
        "models_models",
        sa.Column("granted_at", sa.BigInteger(), server_default="0", nullable=False),
    )
    op.drop_index(_INDEX, table_name="models_models")
    op.create_index(
        _INDEX,
        "models_models",
        ["name"],
        unique=True,
        postgresql_where=sa.text(f"{_TUNED} AND grant_id = ''"),
    )


def downgrade() -> None:
    op.execute("DELETE FROM models_models WHERE grant_id <> ''")
    op.drop_index(_INDEX, table_name="models_models")
    op.create_index(
        _INDEX, "models_models", ["name"], unique=True, postgresql_where=sa.text(_TUNED)
    )
    op.drop_column("models_models", "granted_at")
    op.drop_column("models_models", "grant_id")
