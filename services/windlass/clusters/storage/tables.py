"""The tables of clusters."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from windlass.core.db import metadata

_TIME = sa.DateTime(timezone=True)
# What an object of the inventory adds to its cluster.
AMOUNTS = ("gpus", "used_gpus", "cpu_millis", "memory_bytes")

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
    # What its agent said of itself last.
    sa.Column("reported_executor", sa.Text, nullable=False, server_default=""),
    # What the operator decided; see `windlass.clusters.domain.policy`.
    sa.Column("executor", sa.Text, nullable=False, server_default="kubernetes"),
    sa.Column("roles", ARRAY(sa.Text), nullable=False, server_default="{jobs,engines}"),
    sa.Column("shared", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("addresses", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("max_slots", sa.Integer, nullable=False, server_default="0"),
    sa.Column("max_engine_slots", sa.Integer, nullable=False, server_default="0"),
    sa.Column("geography", sa.Text, nullable=False, server_default=""),
    # That was changed, and what may not be there any more has not ended.
    sa.Column("relabelled", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("run_folder", sa.Text, nullable=False, server_default=""),
    sa.Column("capacity", sa.LargeBinary, nullable=False, server_default=""),
    # Counts up with every change of its assignments and quota.
    sa.Column("spec_revision", sa.BigInteger, nullable=False, server_default="0"),
)

registration_keys = sa.Table(
    "clusters_registration_keys",
    metadata,
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("cluster_id", sa.Text, nullable=False, index=True),
    sa.Column("expires_at", _TIME, nullable=False),
    sa.Column("used_at", _TIME),
)

# At most two per cluster are valid at once: one in use, and the next until it is used.
credentials = sa.Table(
    "clusters_credentials",
    metadata,
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("cluster_id", sa.Text, nullable=False, index=True),
    sa.Column("created_at", _TIME, nullable=False, server_default=sa.func.now()),
    # Null: never.
    sa.Column("expires_at", _TIME),
    # Null until its agent called with it, and so surely has it.
    sa.Column("used_at", _TIME),
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
    # Where in a cluster of Kubernetes it is placed.
    sa.Column("namespace", sa.Text, nullable=False, server_default=""),
    sa.Index("ix_clusters_workloads_watch", "cluster_id", "revision"),
    sa.Index("ix_clusters_workloads_status", "owner", "status_revision"),
)

# A project's place in a cluster. A row stays until the agent cleaned up, so that its
# namespace goes to no other project before.
# Who signs the tokens of a cluster's service accounts, as its agent says.
issuers = sa.Table(
    "clusters_issuers",
    metadata,
    sa.Column("cluster_id", sa.Text, primary_key=True),
    sa.Column("issuer", sa.Text, nullable=False),
    sa.Column("jwks", sa.Text, nullable=False),
    sa.Column("reported_at", _TIME, nullable=False, server_default=sa.func.now()),
)
assignments = sa.Table(
    "clusters_assignments",
    metadata,
    sa.Column("cluster_id", sa.Text, primary_key=True),
    sa.Column("namespace", sa.Text, primary_key=True),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("organization_id", sa.Text, nullable=False),
    # `assigned`, `draining` while its last jobs run, then `removing`.
    sa.Column("state", sa.Text, nullable=False),
    # The spec's revision that brought it there.
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("local_queue", sa.Text, nullable=False),
    sa.Column("cluster_queue", sa.Text, nullable=False),
    sa.Column("priority_class", sa.Text, nullable=False),
    sa.Column("price_micros", sa.BigInteger, nullable=False),
    sa.Column("node_selector", JSONB, nullable=False),
    sa.Column("created_at", _TIME, nullable=False, server_default=sa.func.now()),
    sa.Index(
        "uq_clusters_assignments_project",
        "cluster_id",
        "project_id",
        unique=True,
        postgresql_where=sa.text("state = 'assigned'"),
    ),
)

# A serialized QuotaSpec per cluster that has one.
quotas = sa.Table(
    "clusters_quotas",
    metadata,
    sa.Column("cluster_id", sa.Text, primary_key=True),
    sa.Column("spec", sa.LargeBinary, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
)

# What a cluster's agent said last of what is there, beside `inventory`, and of the spec.
observations = sa.Table(
    "clusters_observations",
    metadata,
    sa.Column("cluster_id", sa.Text, primary_key=True),
    # The report that the next one must follow.
    sa.Column("session_id", sa.Text, nullable=False, server_default=""),
    sa.Column("sequence", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("observed_at", _TIME),
    # Sums of the inventory's.
    *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in AMOUNTS),
    # A serialized SpecStatus.
    sa.Column("spec_status", sa.LargeBinary, nullable=False, server_default=""),
)

inventory = sa.Table(
    "clusters_inventory",
    metadata,
    sa.Column("cluster_id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    # Which of InventoryItem's objects it is.
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("item", sa.LargeBinary, nullable=False),
    *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in AMOUNTS),
    sa.Index("ix_clusters_inventory_kind", "cluster_id", "kind"),
)

# What goes with its cluster; workloads stay until their owners have heard.
OF_A_CLUSTER = (
    credentials, registration_keys, assignments, quotas, observations, inventory, issuers,
)  # fmt: skip
