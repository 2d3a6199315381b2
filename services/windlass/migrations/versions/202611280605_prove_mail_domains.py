"""Prove mail domains.

Revision ID: 202611280605
Revises: 202611280600
Create Date: 2026-11-28 11:00:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611280605"
down_revision = "202611280600"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "users_mail_domains",
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("default_role", sa.Text(), nullable=False),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("verified_at", "missing_since", "checked_at", "created_at")
        ),
        sa.PrimaryKeyConstraint("organization_id", "name", name="pk_users_mail_domains"),
    )
    op.create_index(
        "uq_users_mail_domains_verified",
        "users_mail_domains",
        ["name"],
        unique=True,
        postgresql_where=sa.text("verified_at > 0"),
    )


def downgrade() -> None:
    op.drop_table("users_mail_domains")
