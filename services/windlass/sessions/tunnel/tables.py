"""The tables of sessions."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from windlass.core.db import metadata

_TIME = sa.DateTime(timezone=True)

# The processes that serve sessions now, each under the id of its life.
replicas = sa.Table(
    "sessions_replicas",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    # Where the others reach it.
    sa.Column("address", sa.Text, nullable=False),
    # Its lease; renewed while it lives.
    sa.Column("lease_until", _TIME, nullable=False),
)

# Which replica holds the control stream of a cluster's agent.
tunnels = sa.Table(
    "sessions_tunnels",
    metadata,
    sa.Column("cluster_id", sa.Text, primary_key=True),
    sa.Column("replica_id", sa.Text, nullable=False, index=True),
    # The agent's life, and those before it, which may not come back.
    sa.Column("session_id", sa.Text, nullable=False),
    sa.Column("fenced", ARRAY(sa.Text), nullable=False, server_default="{}"),
    # Grows with each control stream; an older one is over.
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("claimed_at", _TIME, nullable=False),
    # When the control stream ended and none has followed.
    sa.Column("lost_at", _TIME),
)
