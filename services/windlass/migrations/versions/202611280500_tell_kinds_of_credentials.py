"""Tell kinds of credentials, and note what organizations know of people.

Revision ID: 202611280500
Revises: 202611280320
Create Date: 2026-11-28 05:20:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611280500"
down_revision = "202611280320"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "users_api_keys", sa.Column("kind", sa.Text(), server_default="key", nullable=False)
    )
    op.create_table(
        "users_people",
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), server_default="", nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("deactivated_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "user_id", name=op.f("pk_users_people")),
    )
    op.create_index(
        op.f("ix_users_people_organization_id_email"), "users_people", ["organization_id", "email"]
    )


def downgrade() -> None:
    op.drop_table("users_people")
    # Of an earlier release, they would be keys of a role that it does not know.
    op.execute(
        "UPDATE users_api_keys SET revoked_at = extract(epoch FROM now())"
        " WHERE revoked_at = 0 AND kind <> 'key'"
    )
    op.drop_column("users_api_keys", "kind")
