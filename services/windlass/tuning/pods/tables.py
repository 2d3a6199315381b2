"""The table of pods that train and sample."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns

# A trainer or a sampler that a cluster runs, or is to stop; its id is the workload's.
pods = sa.Table(
    "tuning_pods",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    sa.Column("cluster_id", sa.Text, nullable=False),
    # trainer or sampler.
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("base_model", sa.Text, nullable=False),
    # The run or the session that it is for.
    sa.Column("owner", sa.Text, nullable=False),
    # Its engine, processes, rank and resources.
    sa.Column("settings", JSONB, nullable=False),
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
)
