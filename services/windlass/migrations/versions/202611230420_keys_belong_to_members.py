"""Keys belong to members: who made a key, with which; what a member is.

Whoever holds a live key of the platform becomes a member with that role, and a project that
has no owner gets those of its organization: what a key may do rests on a membership from now on.

Revision ID: 202611230420
Revises: 202611230415
Create Date: 2026-11-23 04:20:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611230420"
down_revision = "202611230415"
branch_labels = None
depends_on = None

_NEW = (
    ("users_members", "kind", "person"),
    ("users_api_keys", "made_by", ""),
    ("users_api_keys", "parent_key_id", ""),
)
_INDEXES = (
    ("ix_users_members_user_id", "users_members", "user_id"),
    ("ix_users_api_keys_parent_key_id", "users_api_keys", "parent_key_id"),
    ("ix_users_api_keys_user_id", "users_api_keys", "user_id"),
)


def upgrade() -> None:
    for table, column, default in _NEW:
        op.add_column(table, sa.Column(column, sa.Text(), server_default=default, nullable=False))
    for name, table, column in _INDEXES:
        op.create_index(name, table, [column])
    op.execute("UPDATE users_api_keys SET made_by = user_id")
    op.execute(
        "INSERT INTO users_members (organization_id, project_id, user_id, role, created_at)"
        " SELECT DISTINCT organization_id, '', user_id, 'platform_admin',"
        " extract(epoch FROM now())::bigint FROM users_api_keys"
        " WHERE role = 'platform_admin' AND revoked_at = 0 AND user_id <> ''"
        " ON CONFLICT (organization_id, project_id, user_id) DO UPDATE SET role = excluded.role"
    )
    op.execute(
        "INSERT INTO users_members (organization_id, project_id, user_id, role, created_at)"
        " SELECT m.organization_id, p.id, m.user_id, 'project_owner', m.created_at"
        " FROM users_projects p JOIN users_members m ON m.organization_id = p.organization_id"
        " WHERE m.project_id = '' AND m.role IN ('platform_admin', 'organization_owner')"
        " AND NOT EXISTS (SELECT 1 FROM users_members o WHERE o.role = 'project_owner'"
        " AND o.organization_id = p.organization_id AND o.project_id = p.id)"
        " ON CONFLICT (organization_id, project_id, user_id) DO UPDATE SET role = excluded.role"
    )


def downgrade() -> None:
    op.execute("UPDATE users_members SET role = 'organization_owner' WHERE role = 'platform_admin'")
    for name, table, _ in reversed(_INDEXES):
        op.drop_index(name, table_name=table)
    for table, column, _ in reversed(_NEW):
        op.drop_column(table, column)
