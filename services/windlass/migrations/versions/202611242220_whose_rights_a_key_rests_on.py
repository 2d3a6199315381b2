"""Note whose rights a key rests on: who made it, and who has or made the keys above it.

Revision ID: 202611242220
Revises: 202611241110
Create Date: 2026-11-24 22:20:14.078147
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611242220"
down_revision = "202611241110"
branch_labels = None
depends_on = None

_FILL = """
WITH RECURSIVE line (id, above, people) AS (
    SELECT id, parent_key_id, ARRAY[made_by] FROM users_api_keys
    UNION ALL
    SELECT line.id, above.parent_key_id, ARRAY[above.user_id, above.made_by]
    FROM line JOIN users_api_keys above ON above.id = line.above
), people AS (
    SELECT id, array_agg(DISTINCT person ORDER BY person) AS names
    FROM line, unnest(people) AS person WHERE person <> '' GROUP BY id
)
UPDATE users_api_keys key SET rests_on = people.names FROM people WHERE people.id = key.id
"""


def upgrade() -> None:
    op.add_column(
        "users_api_keys",
        sa.Column("rests_on", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
    )
    op.execute(_FILL)
    op.create_index(
        "ix_users_api_keys_rests_on", "users_api_keys", ["rests_on"], postgresql_using="gin"
    )


def downgrade() -> None:
    op.drop_index("ix_users_api_keys_rests_on", table_name="users_api_keys")
    op.drop_column("users_api_keys", "rests_on")
