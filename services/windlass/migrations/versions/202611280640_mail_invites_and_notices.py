"""Mail invites, and notices of keys that are about to end.

Revision ID: 202611280640
Revises: 202611280630
Create Date: 2026-11-28 15:00:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611280640"
down_revision = "202611280630"
branch_labels = None
depends_on = None


def _text(name: str, server_default: str | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, server_default=server_default)


def _number(name: str, server_default: str | None = None) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default=server_default)


def upgrade() -> None:
    op.create_table(
        "users_mails",
        _text("id"),
        _text("organization_id"),
        _text("about"),
        _text("kind"),
        _text("recipient"),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        _text("state"),
        _number("created_at"),
        _number("expires_at"),
        _number("sent_at", server_default="0"),
        sa.Column("failures", sa.Integer(), nullable=False, server_default="0"),
        _number("not_before", server_default="0"),
        _text("error", server_default=""),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_users_mails"),
    )
    op.create_index(
        "ix_users_mails_organization_id_created_at",
        "users_mails",
        ["organization_id", "created_at"],
    )
    op.create_index("ix_users_mails_about", "users_mails", ["about"])
    op.create_index(
        "ix_users_mails_waiting",
        "users_mails",
        ["not_before"],
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.add_column("users_api_keys", _number("told_expires_at", server_default="0"))
    op.add_column("users_api_keys", _number("told_unused_at", server_default="0"))
    op.create_index(
        "ix_users_api_keys_expires_at",
        "users_api_keys",
        ["expires_at"],
        postgresql_where=sa.text("expires_at > 0 AND kind = 'key' AND revoked_at = 0"),
    )


def downgrade() -> None:
    op.drop_index("ix_users_api_keys_expires_at", "users_api_keys")
    op.drop_column("users_api_keys", "told_unused_at")
    op.drop_column("users_api_keys", "told_expires_at")
    op.drop_table("users_mails")
