"""The tables of what organizations demand of clients: certificates, and networks."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

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
# By the organization's id; one without a row has no list.
allowed_networks = sa.Table(
    "users_allowed_networks",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("networks", ARRAY(sa.Text), nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)
