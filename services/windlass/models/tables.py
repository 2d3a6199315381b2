"""The tables of models."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns

versions = sa.Table(
    "models_versions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    # The name it was registered under, which outlives the name's row.
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("manifest", JSONB, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("object_prefix", sa.Text, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("base_version_id", sa.Text, nullable=False, server_default=""),
    sa.Column("base_model", sa.Text, nullable=False, server_default=""),
    sa.Column("job_id", sa.Text, nullable=False, server_default=""),
    sa.Column("is_checkpoint", sa.Boolean, nullable=False, server_default="false"),
    sa.Column("task", sa.Text, nullable=False, server_default="generation"),
    sa.Column("model_type", sa.Text, nullable=False, server_default=""),
    sa.Column("parent", sa.Text, nullable=False, server_default=""),
    sa.Column("footprint", JSONB(none_as_null=True)),
    sa.Column("quantization", JSONB(none_as_null=True)),
    sa.Column("formats", JSONB, nullable=False, server_default="{}"),
    sa.Column("preset", JSONB(none_as_null=True)),
    sa.Column("stack", sa.Text, nullable=False, server_default=""),
    sa.Column("upstream", sa.Text, nullable=False, server_default=""),
    sa.Column("adapter", JSONB(none_as_null=True)),
    sa.Column("merged_version_id", sa.Text, nullable=False, server_default=""),
    sa.Column("merged_of", sa.Text, nullable=False, server_default=""),
    sa.Column("source", sa.Text, unique=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    *lease_columns(),
    sa.Index(None, "base_version_id", postgresql_where=sa.text("base_version_id <> ''")),
    sa.Index("ix_models_versions_stack", "stack", postgresql_where=sa.text("stack <> ''")),
    sa.Index(
        "ix_models_versions_merged_of", "merged_of", postgresql_where=sa.text("merged_of <> ''")
    ),
    sa.Index(
        "ix_models_versions_merged",
        "merged_version_id",
        postgresql_where=sa.text("merged_version_id <> ''"),
    ),
    # Byte order, so that a prefix search may use it under any locale.
    sa.Index(
        "ix_models_versions_prefix",
        "object_prefix",
        postgresql_ops={"object_prefix": "text_pattern_ops"},
    ),
    sa.Index(
        "ix_models_versions_ending",
        "id",
        postgresql_where=sa.text("state IN ('deleting', 'removing')"),
    ),
)
models = sa.Table(
    "models_models",
    metadata,
    # Empty for all projects.
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("version_id", sa.Text, nullable=False),
    # A deleted name stays as a row, so that watchers learn of it.
    sa.Column("deleted", sa.Boolean, nullable=False, server_default="false"),
    sa.Column("revision", sa.BigInteger, nullable=False, unique=True),
    # Not empty: the project was granted the use of another's version.
    sa.Column("grant_id", sa.Text, nullable=False, server_default=""),
    sa.Column("granted_at", sa.BigInteger, nullable=False, server_default="0"),
    # Of the version, by which lists are ordered.
    sa.Column("created_at", sa.BigInteger, nullable=False, server_default="0"),
    # An engine serves adapters of many projects, by name.
    sa.Index(
        "uq_models_models_tuned",
        "name",
        unique=True,
        postgresql_where=sa.text("name LIKE 'ft:%' AND NOT deleted AND grant_id = ''"),
    ),
    sa.Index(None, "version_id"),
    sa.Index(
        "ix_models_models_newest",
        "project_id",
        "created_at",
        "name",
        postgresql_where=sa.text("NOT deleted"),
    ),
)
imports = sa.Table(
    "models_imports",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("is_global", sa.Boolean, nullable=False),
    sa.Column("manifest", JSONB, nullable=False),
    sa.Column("version_id", sa.Text, nullable=False),
    # Empty: that of the version's id alone.
    sa.Column("object_prefix", sa.Text, nullable=False, server_default=""),
    # open, complete, expired.
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    *lease_columns(),
    sa.Index("ix_models_imports_unfinished", "expires_at", postgresql_where="state <> 'complete'"),
    sa.Index(
        "ix_models_imports_open", "organization_id", postgresql_where=sa.text("state = 'open'")
    ),
)
fetches = sa.Table(
    "models_fetches",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("is_global", sa.Boolean, nullable=False),
    sa.Column("repository", sa.Text, nullable=False),
    sa.Column("revision", sa.Text, nullable=False),
    sa.Column("commit", sa.Text, nullable=False, server_default=""),
    # The version that it becomes; empty once nothing of it is left.
    sa.Column("version_id", sa.Text, nullable=False),
    # Empty: that of the version's id alone.
    sa.Column("object_prefix", sa.Text, nullable=False, server_default=""),
    sa.Column("state", sa.Text, nullable=False),
    # The files that are stored already.
    sa.Column("manifest", JSONB, nullable=False),
    sa.Column("bytes_done", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("bytes_total", sa.BigInteger, nullable=False, server_default="0"),
    # Of all tries, those included that stored nothing.
    sa.Column("bytes_fetched", sa.BigInteger, nullable=False, server_default="0"),
    # Without a byte more since the last that brought some.
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("error_code", sa.Text, nullable=False, server_default=""),
    sa.Column("error_message", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("finished_at", sa.BigInteger, nullable=False, server_default="0"),
    *lease_columns(),
    sa.Index("ix_models_fetches_project", "project_id", "created_at", "id"),
    sa.Index("ix_models_fetches_lately", "organization_id", "finished_at"),
    sa.Index(
        "ix_models_fetches_open",
        "id",
        postgresql_where=sa.text(
            "state IN ('queued', 'running') OR (state <> 'succeeded' AND version_id <> '')"
        ),
    ),
)
# One row whose lock orders the commits of every change, so that no reader of
# revisions skips one.
stream = sa.Table(
    "models_stream",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
)
