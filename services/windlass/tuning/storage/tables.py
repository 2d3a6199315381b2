"""The tables of tuning."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns


def _tenant() -> tuple[sa.Column[str], sa.Column[str]]:
    return (
        sa.Column("organization_id", sa.Text, nullable=False),
        sa.Column("project_id", sa.Text, nullable=False),
    )


sessions = sa.Table(
    "tuning_sessions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    *_tenant(),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("tags", JSONB, nullable=False),
    sa.Column("user_metadata", JSONB, nullable=False),
    sa.Column("sdk_version", sa.Text, nullable=False),
    sa.Column("display_name", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("heartbeat_at", sa.BigInteger, nullable=False),
    # success, errored or interrupted; empty until it finishes.
    sa.Column("end", sa.Text, nullable=False, server_default=""),
    sa.Column("detail", sa.Text, nullable=False, server_default=""),
    sa.Index(None, "project_id", "created_at", "id"),
)
runs = sa.Table(
    "tuning_runs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    *_tenant(),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("session_id", sa.Text, nullable=False, index=True),
    sa.Column("base_model", sa.Text, nullable=False),
    sa.Column("settings", JSONB, nullable=False),
    # Whether it trains all parameters, in a trainer of its own.
    sa.Column("is_full", sa.Boolean, nullable=False, server_default="false"),
    sa.Column("user_metadata", JSONB, nullable=False),
    # active, lost or deleted; copied of a copy, which is not trained.
    sa.Column("state", sa.Text, nullable=False, server_default="active"),
    # The operation that comes next.
    sa.Column("next_seq", sa.BigInteger, nullable=False, server_default="1"),
    # Whether it was opened, and what has changed since its last saved state.
    sa.Column("is_open", sa.Boolean, nullable=False, server_default="false"),
    sa.Column("is_dirty", sa.Boolean, nullable=False, server_default="false"),
    # What a trainer that comes anew goes on from; empty: the seed.
    sa.Column("state_checkpoint_id", sa.Text, nullable=False, server_default=""),
    # How many operations were carried out in order, and how many of them that state has.
    sa.Column("places", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("state_place", sa.BigInteger, nullable=False, server_default="0"),
    # How many there were when its newest weights were looked for, to publish them; -1: never.
    sa.Column("published_places", sa.BigInteger, nullable=False, server_default="-1"),
    # That it took of a device; replays are not counted.
    sa.Column("device_time_ms", sa.BigInteger, nullable=False, server_default="0"),
    # Of samplers whose weights move.
    sa.Column("inflight_checkpoint_id", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("last_request_at", sa.BigInteger, nullable=False),
    *lease_columns(),
    sa.Index(None, "project_id", "created_at", "id"),
    sa.Index("ix_tuning_runs_full", "lease_until", postgresql_where=sa.text("is_full")),
    sa.Index(
        "ix_tuning_runs_unpublished", "last_request_at",
        postgresql_where=sa.text("is_full AND places > published_places"),
    ),
)  # fmt: skip
operations = sa.Table(
    "tuning_operations",
    metadata,
    sa.Column("sequence", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    *_tenant(),
    # Empty of what a sampler is asked.
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("sampler_id", sa.Text, nullable=False),
    # 0: unset.
    sa.Column("seq_id", sa.BigInteger, nullable=False),
    # Its run or sampler and its number; null where it has none.
    sa.Column("slot", sa.Text, unique=True),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    # Whose key asked.
    sa.Column("user_id", sa.Text, nullable=False, server_default=""),
    sa.Column("key_id", sa.Text, nullable=False, server_default=""),
    # In the row, or an object.
    sa.Column("body", sa.LargeBinary),
    sa.Column("body_key", sa.Text, nullable=False, server_default=""),
    # 0 once it is gone.
    sa.Column("body_bytes", sa.BigInteger, nullable=False, server_default="0"),
    # queued, done, or expired: without its result.
    sa.Column("state", sa.Text, nullable=False, server_default="queued"),
    sa.Column("result", sa.LargeBinary),
    sa.Column("result_key", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("finished_at", sa.BigInteger, nullable=False, server_default="0"),
    # Its place among what its sampler has answered; 0: none.
    sa.Column("ended", sa.BigInteger, nullable=False, server_default="0"),
    # Its place among those that were carried out for the run; 0: none.
    sa.Column("place", sa.BigInteger, nullable=False, server_default="0"),
    # Of the result, and of the files of what was saved or loaded; they outlive both.
    sa.Column("result_digest", sa.LargeBinary),
    sa.Column("weights_digest", sa.LargeBinary),
    # The checkpoint that it loaded, whatever has its path now.
    sa.Column("loaded_checkpoint_id", sa.Text, nullable=False, server_default=""),
    *lease_columns(),
    sa.Index(
        "ix_tuning_operations_queued_runs",
        "run_id",
        "seq_id",
        postgresql_where=sa.text("state = 'queued'"),
    ),
    sa.Index(
        "ix_tuning_operations_queued", "project_id", postgresql_where=sa.text("state = 'queued'")
    ),
    sa.Index(
        "ix_tuning_operations_done", "finished_at", postgresql_where=sa.text("state = 'done'")
    ),
    sa.Index(None, "project_id"),
    sa.Index(
        "ix_tuning_operations_body_bytes", "project_id",
        postgresql_include=["body_bytes"], postgresql_where=sa.text("body_bytes > 0"),
    ),
    sa.Index(
        "ix_tuning_operations_bodies", "finished_at",
        postgresql_where=sa.text("state = 'expired' AND (body IS NOT NULL OR body_key <> '')"),
    ),
    sa.Index(
        "ix_tuning_operations_ended", "sampler_id", "ended",
        postgresql_where=sa.text("ended > 0"),
    ),
    sa.Index(
        "ix_tuning_operations_places", "run_id", "place", postgresql_where=sa.text("place > 0")
    ),
)  # fmt: skip
checkpoints = sa.Table(
    "tuning_checkpoints",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    *_tenant(),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("base_model", sa.Text, nullable=False),
    sa.Column("settings", JSONB, nullable=False),
    # Empty of what one sampler has to itself.
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("is_for_sampler", sa.Boolean, nullable=False),
    # For other programs; of its sampler's form too.
    sa.Column("is_external", sa.Boolean, nullable=False, server_default="false"),
    # Other projects of its organization read it too.
    sa.Column("is_published", sa.Boolean, nullable=False, server_default="false"),
    # The SHA-256 of each file, by its name; without any of before these were kept.
    sa.Column("files", JSONB, nullable=False, server_default="{}"),
    sa.Column("user_metadata", JSONB, nullable=False),
    # writing, ready or deleting.
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False, server_default="0"),
    # How many operations of its run it has.
    sa.Column("place", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False, server_default="0"),
    *lease_columns(),
    sa.Index(
        "uq_tuning_checkpoints_names",
        "run_id",
        "is_for_sampler",
        "is_external",
        "name",
        unique=True,
        postgresql_where=sa.text("state = 'ready' AND name <> ''"),
    ),
    sa.Index(None, "project_id", "created_at", "id"),
    sa.Index("ix_tuning_checkpoints_expiring", "expires_at",
             postgresql_where=sa.text("expires_at > 0")),
    sa.Index("ix_tuning_checkpoints_unready", "id", postgresql_where=sa.text("state <> 'ready'")),
    sa.Index(
        "ix_tuning_checkpoints_newest", "run_id", "place", "created_at", "id",
        postgresql_where=sa.text("state = 'ready' AND is_for_sampler"),
    ),
)  # fmt: skip
samplers = sa.Table(
    "tuning_samplers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    *_tenant(),
    sa.Column("session_id", sa.Text, nullable=False, index=True),
    sa.Column("base_model", sa.Text, nullable=False),
    # Empty: the base model, or of a run's latest.
    sa.Column("checkpoint_id", sa.Text, nullable=False),
    # Of one whose weights move: the run that moves them.
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    # How many requests it has answered.
    sa.Column("ended", sa.BigInteger, nullable=False, server_default="0"),
    # That joined it beside the first one.
    sa.Column("clients", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Index(None, "project_id"),
)
losses = sa.Table(
    "tuning_losses",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    *_tenant(),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("session_id", sa.Text, nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    # Inputs and graph, as JSON; never changed.
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Index(None, "project_id"),
)
# Checkpoints that whoever shows the secret may load, for minutes.
loans = sa.Table(
    "tuning_loans",
    metadata,
    # Of the secret.
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    *_tenant(),
    sa.Column("checkpoint_id", sa.Text, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False, index=True),
    sa.Index(None, "project_id"),
)
# What the usage service has not been told yet: each operation once, with its result.
owed_usage = sa.Table(
    "tuning_owed_usage",
    metadata,
    # The operation's.
    sa.Column("id", sa.Text, primary_key=True),
    *_tenant(),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("kind", sa.SmallInteger, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("device_time_ms", sa.BigInteger, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Index(None, "project_id"),
)
