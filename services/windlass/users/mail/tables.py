"""The table of mail."""

import sqlalchemy as sa

from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns

mails = sa.Table(
    "users_mails",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    # The id of the invite or the key that it is about.
    sa.Column("about", sa.Text, nullable=False),
    # `invite` or `notice`, of which each has its bound.
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("recipient", sa.Text, nullable=False),
    # Subject and text, which may hold a secret; empty once nothing is sent any more.
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    # Afterwards it says nothing that is true.
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("sent_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("not_before", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
    *lease_columns(),
    sa.Index(None, "organization_id", "created_at"),
    sa.Index(None, "about"),
    sa.Index("ix_users_mails_waiting", "not_before", postgresql_where=sa.text("state = 'waiting'")),
)
WAITING, SENT, FAILED, WITHDRAWN = "waiting", "sent", "failed", "withdrawn"
INVITE, NOTICE = "invite", "notice"
