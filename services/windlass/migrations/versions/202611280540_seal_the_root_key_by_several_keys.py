"""Seal the root key by several master keys.

Revision ID: 202611280540
Revises: 202611280530
Create Date: 2026-11-28 05:40:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611280540"
down_revision = "202611280530"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_constraint(op.f("ck_core_root_keys_one"), "core_root_keys", type_="check")
    op.create_unique_constraint(
        op.f("uq_core_root_keys_master_key_id"), "core_root_keys", ["master_key_id"]
    )


def downgrade() -> None:
    # An earlier release knows one seal: the newest, as it would have left it.
    op.execute("DELETE FROM core_root_keys WHERE id < (SELECT max(id) FROM core_root_keys)")
    op.execute("UPDATE core_root_keys SET id = 1")
    op.drop_constraint(op.f("uq_core_root_keys_master_key_id"), "core_root_keys", type_="unique")
    op.create_check_constraint(op.f("ck_core_root_keys_one"), "core_root_keys", sa.text("id = 1"))
