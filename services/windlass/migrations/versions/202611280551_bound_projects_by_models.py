"""Bound what projects are for by models.

Revision ID: 202611280551
Revises: 202611280550
Create Date: 2026-11-28 05:51:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611280551"
down_revision = "202611280550"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "users_model_policies",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("model_ids", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users_model_policies")),
    )
    op.create_index(
        op.f("ix_users_model_policies_organization_id"), "users_model_policies", ["organization_id"]
    )


def downgrade() -> None:
    # The release before holds nobody to them: an operator who needs them does not go back.
    op.drop_table("users_model_policies")
