"""The tables of sign-in."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from windlass.core.db import metadata

# An empty organization: of the installation.
identity_providers = sa.Table(
    "users_identity_providers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("issuer", sa.Text, nullable=False),
    sa.Column("client_id", sa.Text, nullable=False),
    # Empty: a public client.
    sa.Column("client_secret", sa.LargeBinary, nullable=False),
    sa.Column("scopes", ARRAY(sa.Text), nullable=False),
    sa.Column("domains", ARRAY(sa.Text), nullable=False),
    sa.Column("default_role", sa.Text, nullable=False),
    sa.Column("groups_claim", sa.Text, nullable=False),
    sa.Column("person_claim", sa.Text, nullable=False, server_default=""),
    # From a value of that claim to the id of a group.
    sa.Column("groups", JSONB, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("organization_id", "name"),
)
# Whom an issuer's subject is in an organization.
identities = sa.Table(
    "users_identities",
    metadata,
    sa.Column("provider_id", sa.Text, primary_key=True),
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, primary_key=True),
    # It outlives the provider for whom was removed, so that no other of it takes them in.
    sa.Column("issuer", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Index(None, "organization_id", "user_id"),
)
# What a program redeems once for a session, by the digest of its code.
sign_in_codes = sa.Table(
    "users_sign_in_codes",
    metadata,
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("signed_in", JSONB, nullable=False),
    sa.Column("redirect_uri", sa.Text, nullable=False),
    sa.Column("code_challenge", sa.Text, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Index(None, "expires_at"),
)
# What a person is asked in the middle of a sign-in, by the digest of what their browser keeps.
sign_in_questions = sa.Table(
    "users_sign_in_questions",
    metadata,
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("confirmation", sa.LargeBinary, nullable=False),
    # Whom the issuer vouches for.
    sa.Column("signed_in", JSONB, nullable=False),
    sa.Column("choices", JSONB, nullable=False),
    sa.Column("client", JSONB, nullable=False),
    sa.Column("invite", sa.LargeBinary, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Index(None, "expires_at"),
)
device_sign_ins = sa.Table(
    "users_device_sign_ins",
    metadata,
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("user_code", sa.Text, nullable=False, unique=True),
    sa.Column("device", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    # Null until somebody has let it in, or has not.
    sa.Column("signed_in", JSONB),
    sa.Column("denied", sa.Boolean, nullable=False, server_default="false"),
    sa.Column("polled_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Index(None, "expires_at"),
)
mail_domains = sa.Table(
    "users_mail_domains",
    metadata,
    sa.Column("organization_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("token", sa.Text, nullable=False),
    sa.Column("default_role", sa.Text, nullable=False),
    # 0: not verified, or not any more.
    sa.Column("verified_at", sa.BigInteger, nullable=False),
    sa.Column("missing_since", sa.BigInteger, nullable=False),
    sa.Column("checked_at", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    # It belongs to one organization.
    sa.Index(
        "uq_users_mail_domains_verified",
        "name",
        unique=True,
        postgresql_where=sa.text("verified_at > 0"),
    ),
)
invites = sa.Table(
    "users_invites",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("email", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    # From a project's id to the role in it.
    sa.Column("projects", JSONB, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("invited_by", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("accepted_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("accepted_by", sa.Text, nullable=False, server_default=""),
    sa.Index(None, "organization_id", "id"),
)
