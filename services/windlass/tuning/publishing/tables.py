"""The table of versions of runs' weights."""

import sqlalchemy as sa

from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns

versions = sa.Table(
    "tuning_versions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    sa.Column("run_id", sa.Text, nullable=False),
    # Of its run; never given twice.
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("checkpoint_id", sa.Text, nullable=False),
    # How many operations of the run the checkpoint has.
    sa.Column("place", sa.BigInteger, nullable=False),
    # writing, ready, refused, or gone: without its content.
    sa.Column("state", sa.Text, nullable=False),
    # What it is a delta against: 0 for the base model, null of a full one.
    sa.Column("parent", sa.BigInteger),
    sa.Column("base_weights", sa.Text, nullable=False, server_default=""),
    sa.Column("size", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("sha256", sa.Text, nullable=False, server_default=""),
    sa.Column("manifest_size", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("manifest_sha256", sa.Text, nullable=False, server_default=""),
    # Why it is refused, or has not been written yet.
    sa.Column("message", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    *lease_columns(),
    sa.UniqueConstraint("run_id", "version"),
    sa.Index("ix_tuning_versions_kept", "run_id", postgresql_where=sa.text("state <> 'gone'")),
)
