"""The tables of the audit log."""

import sqlalchemy as sa

from windlass.audit_chain.links import DETAILS
from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns

# Of an event, as its recorder says it.
_TEXTS = (
    "organization_id", "project_id", "user_id", "key_id", "action", "resource", "outcome",
    "request_id", "address", "reason",
)  # fmt: skip
_CHANGE = ("before", "after")
COLUMNS = ("id", "at_ms", *_TEXTS, *_CHANGE, "repeats")
EMPTY: dict[str, str | int] = {**dict.fromkeys((*_TEXTS, *_CHANGE), ""), "repeats": 0}
# What a hash covers.
CHAINED = ("id", "at_ms", *_TEXTS, "repeats", "details_digest", "sequence")
STORED = (*CHAINED, *DETAILS)

# The database itself refuses to change rows, but to erase their details, and to delete any that is
# not dropped (triggers).
audit_events = sa.Table(
    "rbac_audit_events",
    metadata,
    sa.Column("organization_id", sa.Text, primary_key=True),
    # Without a gap from 1, in each organization.
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    *(sa.Column(name, sa.Text, nullable=False) for name in _TEXTS[1:]),
    *(sa.Column(name, sa.Text, nullable=False) for name in ("details_digest", *DETAILS)),
    sa.Column("repeats", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sa.Index(None, "organization_id", "action", "sequence"),
)
# Of each organization the last event, and how far checkpoints have come.
audit_chains = sa.Table(
    "rbac_audit_chains",
    metadata,
    # The organization's.
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sa.Column("checkpoint_sequence", sa.BigInteger, nullable=False, server_default="0"),
    # Unix seconds.
    sa.Column("checkpoint_at", sa.BigInteger, nullable=False, server_default="0"),
    # How long the organization wants its events kept; 0: as long as the installation does.
    sa.Column("retention_days", sa.BigInteger, nullable=False, server_default="0"),
    # Events up to this one are dropped, and may be deleted.
    sa.Column("dropped_sequence", sa.BigInteger, nullable=False, server_default="0"),
    # When it was last looked whether some are to be; Unix seconds.
    sa.Column("retained_at", sa.BigInteger, nullable=False, server_default="0"),
    *lease_columns(),
)
# Where an organization's events are exported to.
audit_destinations = sa.Table(
    "rbac_audit_destinations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    # `webhook`, `bucket` or `syslog`.
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    # Of a bucket.
    sa.Column("bucket", sa.Text, nullable=False),
    sa.Column("prefix", sa.Text, nullable=False),
    sa.Column("region", sa.Text, nullable=False),
    sa.Column("access_key_id", sa.Text, nullable=False),
    # Sealed.
    sa.Column("secret", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    # The last event that it has.
    sa.Column("sequence", sa.BigInteger, nullable=False),
    # Unix seconds of the last delivery; 0: none yet.
    sa.Column("delivered_at", sa.BigInteger, nullable=False),
    # Since the last delivery.
    sa.Column("failures", sa.BigInteger, nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    # Unix milliseconds before which nothing is sent.
    sa.Column("not_before_ms", sa.BigInteger, nullable=False),
    *lease_columns(),
    sa.Index(None, "organization_id"),
)
