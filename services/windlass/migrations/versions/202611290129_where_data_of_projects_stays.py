"""Have geographies of projects and of clusters.

Revision ID: 202611290129
Revises: 202611290121
Create Date: 2026-11-29 01:29:36.887863
"""

import sqlalchemy as sa
from alembic import op

revision = "202611290129"
down_revision = "202611290121"
branch_labels = None
depends_on = None
_CLUSTERS, _PROJECTS = "clusters_clusters", "users_projects"
_INDEX = "ix_users_projects_geography"


def upgrade() -> None:
    for table in (_CLUSTERS, _PROJECTS):
        op.add_column(table, sa.Column("geography", sa.Text(), nullable=False, server_default=""))
    op.add_column(
        _CLUSTERS, sa.Column("relabelled", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.create_index(_INDEX, _PROJECTS, ["id"], postgresql_where=sa.text("geography <> ''"))


def downgrade() -> None:
    op.drop_index(_INDEX, table_name=_PROJECTS)
    op.drop_column(_CLUSTERS, "relabelled")
    for table in (_PROJECTS, _CLUSTERS):
        op.drop_column(table, "geography")
