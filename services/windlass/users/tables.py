"""The tables of users."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from windlass.core.db import metadata

organizations = sa.Table(
    "users_organizations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("deleted_at", sa.BigInteger, nullable=False, server_default="0"),
)
projects = sa.Table(
    "users_projects",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("archived_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("is_default", sa.Boolean, nullable=False, server_default="false"),
    sa.Index(None, "organization_id", "id"),
    sa.UniqueConstraint("organization_id", "title"),
)
members = sa.Table(
    "users_members",
    metadata,
    sa.Column("organization_id", sa.Text, primary_key=True),
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False, server_default="person"),
    sa.Index(None, "user_id"),
)
api_keys = sa.Table(
    "users_api_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("redacted", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("revoked_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("last_used_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("made_by", sa.Text, nullable=False, server_default=""),
    sa.Column("parent_key_id", sa.Text, nullable=False, server_default=""),
    sa.Column("rests_on", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("scopes", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("networks", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("last_used_address", sa.Text, nullable=False, server_default=""),
    sa.Column("rotated_at", sa.BigInteger, nullable=False, server_default="0"),
    # The secret of before the last rotation, and its end.
    sa.Column("previous_digest", sa.LargeBinary, unique=True),
    sa.Column("previous_until", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index(None, "organization_id", "project_id", "id"),
    sa.Index(None, "parent_key_id"),
    sa.Index(None, "rests_on", postgresql_using="gin"),
    sa.Index(None, "user_id"),
)
# What holders of cached keys must hear of; a row per change.
key_changes = sa.Table(
    "users_key_changes",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Index(None, "at"),
)
secrets = sa.Table(
    "users_secrets",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)
