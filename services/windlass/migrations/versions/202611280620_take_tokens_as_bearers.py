"""Take tokens as bearers: rules that accept them as they are, and what was signed of each.

Revision ID: 202611280620
Revises: 202611280610
Create Date: 2026-11-28 06:20:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611280620"
down_revision = "202611280610"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("users_api_keys", sa.Column("signed_digest", sa.LargeBinary(), nullable=True))
    op.create_unique_constraint(
        op.f("uq_users_api_keys_signed_digest"), "users_api_keys", ["signed_digest"]
    )
    op.add_column(
        "users_federation_rules",
        sa.Column("accepts_bearer", sa.Boolean(), server_default="false", nullable=False),
    )
    op.create_index(
        "ix_users_federation_rules_bearer",
        "users_federation_rules",
        ["id"],
        postgresql_where=sa.text("accepts_bearer"),
    )


def downgrade() -> None:
    op.drop_index("ix_users_federation_rules_bearer", table_name="users_federation_rules")
    op.drop_column("users_federation_rules", "accepts_bearer")
    # The release before would not know one that comes again.
    op.execute("DELETE FROM users_api_keys WHERE signed_digest IS NOT NULL")
    op.drop_constraint(op.f("uq_users_api_keys_signed_digest"), "users_api_keys", type_="unique")
    op.drop_column("users_api_keys", "signed_digest")
