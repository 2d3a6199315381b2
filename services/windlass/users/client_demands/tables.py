"""The tables of certificates that organizations trust."""

import sqlalchemy as sa

from windlass.core.db import metadata

certificates = sa.Table(
    "users_certificates",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("der", sa.LargeBinary, nullable=False),
    # SHA-256 of it, in hexadecimal.
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("valid_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Index(None, "organization_id", "id"),
    sa.UniqueConstraint("organization_id", "fingerprint"),
)
# Where they are demanded: in a project, or with an empty one in the whole organization.
active_certificates = sa.Table(
    "users_active_certificates",
    metadata,
    sa.Column("organization_id", sa.Text, primary_key=True),
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("certificate_id", sa.Text, primary_key=True),
)
