"""Narrow API keys to scopes and networks, rotate them, and note where they are used.

Revision ID: 202611272340
Revises: 202611271604
Create Date: 2026-11-27 23:40:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611272340"
down_revision = "202611271604"
branch_labels = None
depends_on = None

_LISTS = ("scopes", "networks")
_TIMES = ("rotated_at", "previous_until")


def upgrade() -> None:
    for name in _LISTS:
        op.add_column(
            "users_api_keys",
            sa.Column(name, postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        )
    address = sa.Column("last_used_address", sa.Text(), server_default="", nullable=False)
    op.add_column("users_api_keys", address)
    for name in _TIMES:
        column = sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)
        op.add_column("users_api_keys", column)
    op.add_column("users_api_keys", sa.Column("previous_digest", sa.LargeBinary()))
    op.create_unique_constraint(
        "uq_users_api_keys_previous_digest", "users_api_keys", ["previous_digest"]
    )


def downgrade() -> None:
    # A key that was narrowed would get back what it was denied.
    op.execute(
        "UPDATE users_api_keys SET revoked_at = extract(epoch FROM now())"
        " WHERE revoked_at = 0 AND (scopes <> '{}' OR networks <> '{}')"
    )
    op.drop_constraint("uq_users_api_keys_previous_digest", "users_api_keys")
    for name in ("previous_digest", *_TIMES, "last_used_address", *_LISTS):
        op.drop_column("users_api_keys", name)
