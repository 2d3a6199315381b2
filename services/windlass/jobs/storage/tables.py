"""The tables of jobs."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns
from windlass.jobs.domain.job import JobState

_LIVE = f"state < {JobState.SUCCEEDED:d}"


def _text(name: str, *, index: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, server_default="", index=index)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


jobs = sa.Table(
    "jobs_jobs",
    metadata,
    sa.Column("sequence", sa.BigInteger, sa.Identity(), nullable=False),
    sa.Column("id", sa.Text, primary_key=True),
    _text("organization_id"),
    _text("project_id"),
    _text("request_id"),
    sa.Column("spec", JSONB, nullable=False),
    # Of the spec, for `FindUses`.
    _text("training_file"),
    _text("validation_file"),
    _text("model_version_id"),
    _text("backend"),
    # One text per metadata pair, with the project in it: Postgres keeps
    # statistics of array elements, and of jsonb none that a plan could use.
    sa.Column("labels", ARRAY(sa.Text), nullable=False, server_default="{}"),
    _number("created_at_ms"),
    _text("model_name"),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("plan", JSONB(none_as_null=True)),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    _number("generation"),
    _text("cluster_id"),
    _text("workload_cluster"),
    sa.Column("place", JSONB(none_as_null=True)),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    _number("not_before_ms"),
    _number("deadline_ms"),
    sa.Column("queue", JSONB, nullable=False, server_default="{}"),
    sa.Column("progress", JSONB, nullable=False, server_default="{}"),
    _number("last_seq"),
    sa.Column("observed", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("finished_attempt", sa.Integer, nullable=False, server_default="0"),
    _number("trained_tokens"),
    _number("billed_tokens"),
    _number("estimated_finish_at_ms"),
    _number("started_at_ms"),
    _number("finished_at_ms"),
    _text("fine_tuned_model"),
    sa.Column("result_files", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("evaluation", JSONB(none_as_null=True)),
    sa.Column("failure", JSONB(none_as_null=True)),
    _number("revision"),
    *lease_columns(),
    sa.Index("ix_jobs_jobs_list", "project_id", "sequence"),
    sa.Index("ix_jobs_jobs_labels", "labels", postgresql_using="gin"),
    sa.Index(
        "uq_jobs_jobs_request",
        "project_id",
        "request_id",
        unique=True,
        postgresql_where=sa.text("request_id <> ''"),
    ),
    # What each loop looks for; small, since few jobs are ever in such a state.
    sa.Index(
        "ix_jobs_jobs_unplaced",
        "sequence",
        postgresql_where=sa.text(f"state = {JobState.QUEUED:d} AND cluster_id = ''"),
    ),
    sa.Index(
        "ix_jobs_jobs_validating",
        "id",
        postgresql_where=sa.text(f"state = {JobState.VALIDATING:d}"),
    ),
    sa.Index(
        "ix_jobs_jobs_placed",
        "cluster_id",
        "state",
        postgresql_where=sa.text(f"{_LIVE} AND cluster_id <> ''"),
    ),
    # What quotas count.
    sa.Index("ix_jobs_jobs_live", "organization_id", postgresql_where=sa.text(_LIVE)),
    # What was trained where lately.
    sa.Index(
        "ix_jobs_jobs_started", "started_at_ms", postgresql_where=sa.text("started_at_ms > 0")
    ),
    sa.Index("ix_jobs_jobs_training_file", "training_file", postgresql_where=sa.text(_LIVE)),
    sa.Index(
        "ix_jobs_jobs_validation_file",
        "validation_file",
        postgresql_where=sa.text(f"{_LIVE} AND validation_file <> ''"),
    ),
    sa.Index("ix_jobs_jobs_model", "model_version_id", postgresql_where=sa.text(_LIVE)),
)

# Why a job's latest attempt is where it is; beside the jobs, since only `ExplainJob` asks.
decisions = sa.Table(
    "jobs_decisions",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("decided_at_ms", sa.BigInteger, nullable=False),
    sa.Column("verdicts", JSONB, nullable=False),
)

events = sa.Table(
    "jobs_events",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    # Assigned under the job's row lock, so that no reader can skip one.
    sa.Column("revision", sa.BigInteger, primary_key=True),
    sa.Column("attempt", sa.Integer),
    # The runner's own number; null for our events.
    sa.Column("seq", sa.BigInteger),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("level", sa.SmallInteger, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("metrics", JSONB(none_as_null=True)),
    sa.Index(
        "uq_jobs_events_seq",
        "job_id",
        "attempt",
        "seq",
        unique=True,
        postgresql_where=sa.text("seq IS NOT NULL"),
    ),
)

checkpoints = sa.Table(
    "jobs_checkpoints",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, nullable=False),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    sa.Column("model_name", sa.Text, nullable=False),
    sa.Column("metrics", JSONB, nullable=False),
    sa.Column("artifact_id", sa.Text, nullable=False),
    # A later attempt that passes the same step again adds nothing.
    sa.UniqueConstraint("job_id", "step"),
)

artifacts = sa.Table(
    "jobs_artifacts",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("kind", sa.SmallInteger, nullable=False),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("prefix", sa.Text, nullable=False),
    sa.Column("manifest", JSONB, nullable=False),
    sa.Column("is_adapter", sa.Boolean, nullable=False, server_default="false"),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    sa.Column("committed_at_ms", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("purged_at_ms", sa.BigInteger, nullable=False, server_default="0"),
    sa.UniqueConstraint("job_id", "attempt", "kind", "step"),
)

outbox = sa.Table(
    "jobs_outbox",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("job_id", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("payload", JSONB, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("not_before_ms", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("done", sa.Boolean, nullable=False, server_default="false"),
    sa.Column(
        "created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
    ),
    *lease_columns(),
    sa.UniqueConstraint("job_id", "attempt", "step", "kind"),
    sa.Index("ix_jobs_outbox_open", "id", postgresql_where=sa.text("NOT done")),
)

webhooks = sa.Table(
    "jobs_webhooks",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("event_types", ARRAY(sa.Text), nullable=False),
    sa.Column("secret", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Index("ix_jobs_webhooks_list", "project_id", "created_at", "id"),
)

# An outbox of its own: what tenants' receivers leave lying keeps no other effect waiting. A row
# goes when it is delivered or given up.
deliveries = sa.Table(
    "jobs_deliveries",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("webhook_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("job_id", sa.Text, nullable=False),
    sa.Column("event_type", sa.Text, nullable=False),
    sa.Column("ended_at_ms", sa.BigInteger, nullable=False),
    sa.Column("not_before_ms", sa.BigInteger, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    *lease_columns(),
    sa.Index("ix_jobs_deliveries_due", "webhook_id", "not_before_ms", "id"),
)

logs = sa.Table(
    "jobs_logs",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    # Place in the job's whole log, over all attempts.
    sa.Column("position", sa.BigInteger, primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    # Place in the attempt's log as the agent counts.
    sa.Column("offset", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("object_key", sa.Text, nullable=False),
    sa.UniqueConstraint("job_id", "attempt", "offset"),
)
