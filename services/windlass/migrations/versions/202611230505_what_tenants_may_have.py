"""Add quotas of tenants, and the sums of their stored bytes.

Revision ID: 202611230505
Revises: 202611230450
Create Date: 2026-11-23 05:05:12.113204
"""

import sqlalchemy as sa
from alembic import op

revision = "202611230505"
down_revision = "202611230450"
branch_labels = None
depends_on = None

_INDEXES = (
    ("ix_files_uploads_open", "files_uploads", ["organization_id"], "NOT committed"),
    ("ix_models_imports_open", "models_imports", ["organization_id"], "state = 'open'"),
    ("ix_models_fetches_lately", "models_fetches", ["organization_id", "finished_at"], None),
    ("ix_jobs_jobs_live", "jobs_jobs", ["organization_id"], "state < 9"),
)
_ROWS = """
    SELECT organization_id, project_id, size AS bytes FROM files_files
    UNION ALL
    SELECT organization_id, project_id, bytes FROM models_versions WHERE state <> 'removed'
"""


def upgrade() -> None:
    op.create_table(
        "quotas_bounds",
        sa.Column("scope_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("bound", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope_id", "name", name=op.f("pk_quotas_bounds")),
    )
    op.create_table(
        "quotas_stored",
        sa.Column("scope_id", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope_id", name=op.f("pk_quotas_stored")),
    )
    for scope in ("organization_id", "project_id"):
        op.execute(
            f"INSERT INTO quotas_stored SELECT {scope}, sum(bytes) FROM ({_ROWS}) AS held "  # noqa: S608
            f"WHERE {scope} <> '' GROUP BY {scope}"
        )
    op.add_column(
        "models_fetches",
        sa.Column("bytes_fetched", sa.BigInteger(), server_default="0", nullable=False),
    )
    for name, table, columns, where in _INDEXES:
        condition = sa.text(where) if where else None
        op.create_index(name, table, columns, postgresql_where=condition)


def downgrade() -> None:
    for name, table, _, _ in _INDEXES:
        op.drop_index(name, table_name=table)
    op.drop_column("models_fetches", "bytes_fetched")
    op.drop_table("quotas_stored")
    op.drop_table("quotas_bounds")
