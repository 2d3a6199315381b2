"""The table of federation."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns

objects = sa.Table(
    "federation_objects",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("cluster_id", sa.Text, nullable=False),
    sa.Column("uid", sa.Text, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("spec", sa.LargeBinary, nullable=False),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    sa.Column("deleting", sa.Boolean, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("worker", sa.Text, nullable=False),
    sa.Column("worker_name", sa.Text, nullable=False),
    sa.Column("place", JSONB, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    # What is due to be told is what lags behind.
    sa.Column("told", sa.BigInteger, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("failure", sa.Text, nullable=False),
    sa.Column("message_at_ms", sa.BigInteger, nullable=False),
    sa.Column("not_before_ms", sa.BigInteger, nullable=False),
    sa.Column("guest", sa.LargeBinary, nullable=False),
    *lease_columns(),
    sa.UniqueConstraint("cluster_id", "uid"),
    sa.Index(
        "ix_federation_objects_waiting", "created_at_ms", postgresql_where=sa.text("state = 1")
    ),
    sa.Index("ix_federation_objects_owed", "id", postgresql_where=sa.text("told < revision")),
)
