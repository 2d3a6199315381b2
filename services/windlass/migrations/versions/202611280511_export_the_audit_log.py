"""Export audit logs to destinations of their organizations.

Revision ID: 202611280511
Revises: 202611280510
Create Date: 2026-11-28 05:11:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611280511"
down_revision = "202611280510"
branch_labels = None
depends_on = None

_TABLE = "rbac_audit_destinations"
_TEXTS = ("organization_id", "name", "kind", "url", "bucket", "prefix", "region", "access_key_id")
_COUNTS = ("created_at", "sequence", "delivered_at", "failures")


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("id", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _TEXTS),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _COUNTS),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("not_before_ms", sa.BigInteger(), nullable=False),
        sa.Column("lease_owner", sa.Text()),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rbac_audit_destinations")),
    )
    op.create_index(op.f("ix_rbac_audit_destinations_organization_id"), _TABLE, ["organization_id"])


def downgrade() -> None:
    op.drop_table(_TABLE)
