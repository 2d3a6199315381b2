"""Order the names of models by the creation of what they mean.

Revision ID: 202611232030
Revises: 202611231655
Create Date: 2026-11-23 20:30:11.402716
"""

import sqlalchemy as sa
from alembic import op

revision = "202611232030"
down_revision = "202611231655"
branch_labels = None
depends_on = None

_INDEX = "ix_models_models_newest"


def upgrade() -> None:
    op.add_column(
        "models_models",
        sa.Column("created_at", sa.BigInteger(), server_default="0", nullable=False),
    )
    op.execute(
        "UPDATE models_models SET created_at = v.created_at FROM models_versions v "
        "WHERE v.id = models_models.version_id"
    )
    op.create_index(
        _INDEX,
        "models_models",
        ["project_id", "created_at", "name"],
        postgresql_where=sa.text("NOT deleted"),
    )


def downgrade() -> None:
    op.drop_index(_INDEX, table_name="models_models")
    op.drop_column("models_models", "created_at")
