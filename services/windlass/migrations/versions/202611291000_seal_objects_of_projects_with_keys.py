"""Seal objects of projects that have a key of their own.

Revision ID: 202611291000
Revises: 202611290940
Create Date: 2026-11-29 10:00:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611291000"
down_revision = "202611290940"
branch_labels = None
depends_on = None

_PREFIXED = ("models_imports", "models_fetches")


def upgrade() -> None:
    op.create_table(
        "users_object_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("data_key_id", sa.Text(), nullable=False),
        sa.Column("envelope", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("usable_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users_object_keys")),
        # A server of the release before removes data keys that seal no secret any more.
        sa.ForeignKeyConstraint(
            ["data_key_id"],
            ["users_data_keys.id"],
            name=op.f("fk_users_object_keys_data_key_id_users_data_keys"),
        ),
    )
    op.create_index(op.f("ix_users_object_keys_project_id"), "users_object_keys", ["project_id"])
    op.create_index(op.f("ix_users_object_keys_data_key_id"), "users_object_keys", ["data_key_id"])
    op.add_column(
        "users_data_keys",
        sa.Column("object_key_id", sa.Text(), server_default="", nullable=False),
    )
    for table in _PREFIXED:
        op.add_column(
            table, sa.Column("object_prefix", sa.Text(), server_default="", nullable=False)
        )


def downgrade() -> None:
    # No earlier release opens sealed objects: get them out before.
    for table in _PREFIXED:
        op.drop_column(table, "object_prefix")
    op.drop_column("users_data_keys", "object_key_id")
    op.drop_table("users_object_keys")
