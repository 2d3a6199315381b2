"""The tables of the ledger of devices."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns

# A device of a machine, or a group of them.
leases = sa.Table(
    "tuning_leases",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    # The machine whose memory they share, or the pod that holds them in a cluster.
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("device", sa.Text, nullable=False),
    # Whose quota it counts against; empty: the operator's.
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("device_bytes", sa.BigInteger, nullable=False),
    sa.Column("host_bytes", sa.BigInteger, nullable=False),
    sa.Column("max_residents", sa.BigInteger, nullable=False),
    sa.Column("devices", sa.BigInteger, nullable=False),
    # Served seconds of projects, divided by their weights.
    sa.Column("shares", JSONB, nullable=False, server_default="{}"),
    sa.UniqueConstraint("host", "device"),
)
# A trainer or a sampler that lives on a device, or waits to.
seats = sa.Table(
    "tuning_seats",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False, index=True),
    # Empty while it waits for room.
    sa.Column("lease_id", sa.Text, nullable=False, server_default="", index=True),
    # Whose it is; empty: the operator's, for many projects.
    sa.Column("project_id", sa.Text, nullable=False),
    # The base model.
    sa.Column("workload", sa.Text, nullable=False),
    # The run or the session that it is for; empty: for many.
    sa.Column("owner", sa.Text, nullable=False, server_default="", index=True),
    # trainer or sampler.
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("device_bytes", sa.BigInteger, nullable=False),
    sa.Column("host_bytes", sa.BigInteger, nullable=False),
    sa.Column("residue_bytes", sa.BigInteger, nullable=False),
    # Why it waits for room.
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    # Its place among those that wait for room.
    sa.Column("sequence", sa.BigInteger, sa.Identity(), nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    # parked, restoring, active or parking; times in Unix seconds.
    sa.Column("turn", sa.Text, nullable=False, server_default="parked"),
    sa.Column("turn_project_id", sa.Text, nullable=False, server_default=""),
    sa.Column("asked_at", sa.Double),
    sa.Column("granted_at", sa.Double, nullable=False, server_default="0"),
    sa.Column("served_at", sa.Double, nullable=False, server_default="0"),
    sa.Column("switches", sa.BigInteger, nullable=False, server_default="0"),
    # The server's process, and the one that sits here: id and start, or the id of a pod.
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("process", sa.Text, nullable=False, server_default=""),
    *lease_columns(),
)
