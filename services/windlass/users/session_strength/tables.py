"""The tables of sessions, and of policies for them."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from windlass.core.db import metadata

# By the id of the credential.
sessions = sa.Table(
    "users_sessions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("provider_id", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    # The issuer's name of its own session; empty where it gave none.
    sa.Column("issuer_session", sa.Text, nullable=False),
    # When and how its person has shown who they are, as the issuer says.
    sa.Column("auth_at", sa.BigInteger, nullable=False),
    sa.Column("acr", sa.Text, nullable=False),
    sa.Column("amr", ARRAY(sa.Text), nullable=False),
    # Of its refresh tokens, the number of the one that is good.
    sa.Column("turn", sa.BigInteger, nullable=False),
    sa.Column("idle_until", sa.BigInteger, nullable=False),
    sa.Column("ends_at", sa.BigInteger, nullable=False),
    sa.Index(None, "provider_id", "subject"),
    sa.Index(None, "ends_at"),
)
# By the organization's id.
sign_in_policies = sa.Table(
    "users_sign_in_policies",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("required", sa.Boolean, nullable=False),
    sa.Column("administrators_acr", ARRAY(sa.Text), nullable=False),
    sa.Column("administrators_amr", ARRAY(sa.Text), nullable=False),
    sa.Column("administrators_max_age", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("fresh_max_age", sa.BigInteger, nullable=False, server_default="0"),
)
