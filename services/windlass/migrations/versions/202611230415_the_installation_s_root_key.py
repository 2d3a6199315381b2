"""The installation's root key and the secrets that its processes share.

Revision ID: 202611230415
Revises: 202611221134
Create Date: 2026-11-23 04:15:00
"""

import sqlalchemy as sa
from alembic import op

revision = "202611230415"
down_revision = "202611221134"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "core_root_keys",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("wrapped", sa.Text(), nullable=False),
        sa.Column("master_key_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_core_root_keys_one")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_core_root_keys")),
    )
    op.create_table(
        "core_shared_secrets",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_core_shared_secrets")),
    )


def downgrade() -> None:
    op.drop_table("core_shared_secrets")
    op.drop_table("core_root_keys")
