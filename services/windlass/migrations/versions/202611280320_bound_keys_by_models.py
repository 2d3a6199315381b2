"""Narrow API keys to models, tag them, and have organizations' policies for them.

Revision ID: 202611280320
Revises: 202611280310
Create Date: 2026-11-28 03:03:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611280320"
down_revision = "202611280310"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("models", "tags"):
        op.add_column(
            "users_api_keys",
            sa.Column(name, postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        )
    op.create_table(
        "users_key_policies",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("longest_life", sa.BigInteger(), nullable=False),
        sa.Column("service_accounts_only", sa.Boolean(), nullable=False),
        sa.Column("unused_days", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("looked_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("lease_owner", sa.Text()),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users_key_policies")),
    )


def downgrade() -> None:
    op.drop_table("users_key_policies")
    # A key that was narrowed would get back what it was denied.
    op.execute(
        "UPDATE users_api_keys SET revoked_at = extract(epoch FROM now())"
        " WHERE revoked_at = 0 AND models <> '{}'"
    )
    for name in ("models", "tags"):
        op.drop_column("users_api_keys", name)
