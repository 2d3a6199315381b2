"""Trust clients' certificates.

Revision ID: 202611280630
Revises: 202611280620
Create Date: 2026-11-28 11:00:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611280630"
down_revision = "202611280620"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "users_certificates",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("der", sa.LargeBinary(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("valid_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users_certificates")),
        sa.UniqueConstraint(
            "organization_id",
            "fingerprint",
            name=op.f("uq_users_certificates_organization_id_fingerprint"),
        ),
    )
    op.create_index(
        op.f("ix_users_certificates_organization_id_id"),
        "users_certificates",
        ["organization_id", "id"],
    )
    op.create_table(
        "users_active_certificates",
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("certificate_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint(
            "organization_id",
            "project_id",
            "certificate_id",
            name=op.f("pk_users_active_certificates"),
        ),
    )


def downgrade() -> None:
    # The release before demands none: an operator who needs them does not go back.
    op.drop_table("users_active_certificates")
    op.drop_table("users_certificates")
