"""Ask before people join, and remember who was removed by their issuer.

Revision ID: 202611280600
Revises: 202611280560
Create Date: 2026-11-28 10:30:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611280600"
down_revision = "202611280560"
branch_labels = None
depends_on = None

# Of a provider that is gone nobody is known any more.
_ISSUERS = """
UPDATE users_identities SET issuer = users_identity_providers.issuer
FROM users_identity_providers WHERE users_identity_providers.id = users_identities.provider_id
"""


def upgrade() -> None:
    op.create_table(
        "users_sign_in_questions",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("confirmation", sa.LargeBinary(), nullable=False),
        sa.Column("signed_in", postgresql.JSONB(), nullable=False),
        sa.Column("choices", postgresql.JSONB(), nullable=False),
        sa.Column("client", postgresql.JSONB(), nullable=False),
        sa.Column("invite", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_users_sign_in_questions"),
    )
    op.create_index(
        "ix_users_sign_in_questions_expires_at", "users_sign_in_questions", ["expires_at"]
    )
    op.add_column(
        "users_identities", sa.Column("issuer", sa.Text(), nullable=False, server_default="")
    )
    op.execute(_ISSUERS)
    op.alter_column("users_identities", "issuer", server_default=None)


def downgrade() -> None:
    op.drop_column("users_identities", "issuer")
    op.drop_table("users_sign_in_questions")
