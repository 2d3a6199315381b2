"""Let people sign in by issuers of OpenID Connect.

Revision ID: 202611280505
Revises: 202611280500
Create Date: 2026-11-28 05:30:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611280505"
down_revision = "202611280500"
branch_labels = None
depends_on = None


def _text(name: str, server_default: str | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, server_default=server_default)


def _number(name: str, server_default: str | None = None) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default=server_default)


def _names(name: str) -> sa.Column[list[str]]:
    return sa.Column(name, postgresql.ARRAY(sa.Text()), nullable=False)


def _document(name: str, *, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, postgresql.JSONB(astext_type=sa.Text()), nullable=nullable)


def _bytes(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)


def upgrade() -> None:
    _providers()
    _sessions()
    op.create_table(
        "users_sign_in_codes",
        _bytes("digest"),
        _document("signed_in"),
        _text("redirect_uri"),
        _text("code_challenge"),
        _number("expires_at"),
        sa.PrimaryKeyConstraint("digest", name="pk_users_sign_in_codes"),
    )
    op.create_table(
        "users_device_sign_ins",
        _bytes("digest"),
        _text("user_code"),
        _text("device"),
        _text("address"),
        _document("signed_in", nullable=True),
        sa.Column("denied", sa.Boolean(), nullable=False, server_default="false"),
        _number("polled_at", server_default="0"),
        _number("expires_at"),
        sa.PrimaryKeyConstraint("digest", name="pk_users_device_sign_ins"),
        sa.UniqueConstraint("user_code", name="uq_users_device_sign_ins_user_code"),
    )
    for table in ("users_sign_in_codes", "users_device_sign_ins"):
        op.create_index(f"ix_{table}_expires_at", table, ["expires_at"])
    op.create_table(
        "users_invites",
        _text("id"),
        _text("organization_id"),
        _bytes("digest"),
        _text("email"),
        _text("role"),
        _document("projects"),
        _text("user_id"),
        _text("invited_by"),
        _number("created_at"),
        _number("expires_at"),
        _number("accepted_at", server_default="0"),
        _text("accepted_by", server_default=""),
        sa.PrimaryKeyConstraint("id", name="pk_users_invites"),
        sa.UniqueConstraint("digest", name="uq_users_invites_digest"),
    )
    op.create_index(
        "ix_users_invites_organization_id_id", "users_invites", ["organization_id", "id"]
    )


def _providers() -> None:
    op.create_table(
        "users_identity_providers",
        _text("id"),
        _text("organization_id"),
        _text("name"),
        _text("issuer"),
        _text("client_id"),
        _bytes("client_secret"),
        _names("scopes"),
        _names("domains"),
        _text("default_role"),
        _text("groups_claim"),
        _text("person_claim", server_default=""),
        _document("groups"),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        _number("created_at"),
        _number("updated_at"),
        sa.PrimaryKeyConstraint("id", name="pk_users_identity_providers"),
        sa.UniqueConstraint(
            "organization_id", "name", name="uq_users_identity_providers_organization_id_name"
        ),
    )
    op.create_table(
        "users_identities",
        _text("provider_id"),
        _text("subject"),
        _text("organization_id"),
        _text("user_id"),
        _number("created_at"),
        sa.PrimaryKeyConstraint(
            "provider_id", "subject", "organization_id", name="pk_users_identities"
        ),
    )
    op.create_index(
        "ix_users_identities_organization_id_user_id",
        "users_identities",
        ["organization_id", "user_id"],
    )


def _sessions() -> None:
    op.create_table(
        "users_sessions",
        _text("id"),
        _text("organization_id"),
        _text("user_id"),
        _text("provider_id"),
        _text("subject"),
        _text("issuer_session"),
        _number("auth_at"),
        _text("acr"),
        _names("amr"),
        _number("turn"),
        _number("idle_until"),
        _number("ends_at"),
        sa.PrimaryKeyConstraint("id", name="pk_users_sessions"),
    )
    op.create_index(
        "ix_users_sessions_provider_id_subject", "users_sessions", ["provider_id", "subject"]
    )
    op.create_index("ix_users_sessions_ends_at", "users_sessions", ["ends_at"])
    op.create_table(
        "users_sign_in_policies",
        _text("id"),
        sa.Column("required", sa.Boolean(), nullable=False),
        _names("administrators_acr"),
        _names("administrators_amr"),
        _number("administrators_max_age"),
        _number("updated_at"),
        sa.PrimaryKeyConstraint("id", name="pk_users_sign_in_policies"),
    )


def downgrade() -> None:
    for table in (
        "sign_in_policies",
        "invites",
        "device_sign_ins",
        "sign_in_codes",
        "sessions",
        "identities",
        "identity_providers",
    ):
        op.drop_table(f"users_{table}")
