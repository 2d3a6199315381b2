"""The tables of clusters."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from windlass.core.db import metadata

_TIME = sa.DateTime(timezone=True)

clusters = sa.Table(
    "clusters_clusters",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("created_at", _TIME, nullable=False, server_default=sa.func.now()),
    sa.Column("last_seen_at", _TIME),
    # The session that may watch and report; older ones are fenced for good.
    sa.Column("session_id", sa.Text, nullable=False, server_default=""),
    sa.Column("fenced", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("agent_version", sa.Text, nullable=False, server_default=""),
    sa.Column("executor", sa.Text, nullable=False, server_default=""),
    sa.Column("capacity", sa.LargeBinary, nullable=False, server_default=""),
)

registration_keys = sa.Table(
    "clusters_registration_keys",
    metadata,
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("cluster_id", sa.Text, nullable=False, index=True),
    sa.Column("expires_at", _TIME, nullable=False),
    sa.Column("used_at", _TIME),
)

# Several per cluster may be valid at once, so that one can be rotated without a gap.
credentials = sa.Table(
    "clusters_credentials",
    metadata,
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("cluster_id", sa.Text, nullable=False, index=True),
    sa.Column("created_at", _TIME, nullable=False, server_default=sa.func.now()),
)

# Revisions of a stream. The row lock is held until the writer commits, so
# revisions become visible in their order and no reader can skip one.
counters = sa.Table(
    "clusters_counters",
    metadata,
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
)

workloads = sa.Table(
    "clusters_workloads",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    # A workload that moves leaves a row behind until its old cluster let go.
    sa.Column("cluster_id", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("kind", sa.SmallInteger, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("desired", sa.SmallInteger, nullable=False),
    sa.Column("spec", sa.LargeBinary, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    # Of this generation; 0 until the agent reported on it.
    sa.Column("phase", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("status", sa.LargeBinary),
    sa.Column("status_revision", sa.BigInteger),
    sa.Column("collected_at", _TIME),
    sa.Index("ix_clusters_workloads_watch", "cluster_id", "revision"),
    sa.Index("ix_clusters_workloads_status", "owner", "status_revision"),
)
