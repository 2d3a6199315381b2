"""The table of pods that train and sample."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns

LEASE, LEASE_PREFIX = "lease", "lease_"
# A pod that a cluster runs, or is to stop: a trainer, a sampler, or one that holds devices for
# these; its id is the workload's.
pods = sa.Table(
    "tuning_pods",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    sa.Column("cluster_id", sa.Text, nullable=False),
    # trainer, sampler or lease.
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("base_model", sa.Text, nullable=False),
    # The run or the session that it is for; empty for a lease.
    sa.Column("owner", sa.Text, nullable=False),
    # Its engine, processes, rank and resources.
    sa.Column("settings", JSONB, nullable=False),
    # The pod that holds its devices; empty: it has its own.
    sa.Column("lease_id", sa.Text, nullable=False, server_default="", index=True),
    # Namespace, queue, priority class and node selector, as they were assigned.
    sa.Column("placement", JSONB, nullable=False),
    # SHA-256 of the token that its calls show, in hexadecimal digits.
    sa.Column("token_sha256", sa.Text, nullable=False),
    # running or deleted.
    sa.Column("desired", sa.Text, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    # The newest one that the cluster was told.
    sa.Column("put_generation", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    # When URLs of its files were signed.
    sa.Column("urls_at", sa.BigInteger, nullable=False),
    *lease_columns(),
    # A project has one lease in a cluster.
    sa.Index(
        "ix_tuning_pods_one_lease",
        "project_id",
        "cluster_id",
        unique=True,
        postgresql_where=sa.text("role = 'lease' AND desired = 'running'"),
    ),
)
IS_LEASE = sa.and_(
    pods.c.role == sa.literal_column("'lease'"), pods.c.desired == sa.literal_column("'running'")
)
