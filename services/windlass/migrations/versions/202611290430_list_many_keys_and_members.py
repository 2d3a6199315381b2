"""List the keys and the members of large organizations by their creation.

Revision ID: 202611290430
Revises: 202611290129
Create Date: 2026-11-29 04:30:12.104417
"""

from alembic import op

revision = "202611290430"
down_revision = "202611290129"
branch_labels = None
depends_on = None
_INDEXES = {
    "users_api_keys": ["organization_id", "kind", "created_at", "id"],
    "users_members": ["organization_id", "project_id", "created_at", "user_id"],
}


def upgrade() -> None:
    for table, columns in _INDEXES.items():
        op.create_index(f"ix_{table}_by_creation", table, columns)


def downgrade() -> None:
    for table in _INDEXES:
        op.drop_index(f"ix_{table}_by_creation", table_name=table)
