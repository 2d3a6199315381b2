"""Name the columns that hold a point in time as such.

`retry_ms` and `hour_ms` read like durations, which are named `…_ms` as well.

Revision ID: 202611231655
Revises: 202611230535
Create Date: 2026-11-23 16:55:02.713904
"""

from alembic import op

revision = "202611231655"
down_revision = "202611230535"
branch_labels = None
depends_on = None

_RENAMES = {
    "jobs_jobs": {
        "retry_ms": "not_before_ms",
        "created_ms": "created_at_ms",
        "started_ms": "started_at_ms",
        "finished_ms": "finished_at_ms",
        "estimated_ms": "estimated_finish_at_ms",
    },
    "jobs_decisions": {"decided_ms": "decided_at_ms"},
    "jobs_checkpoints": {"created_ms": "created_at_ms"},
    "jobs_artifacts": {
        "created_ms": "created_at_ms",
        "committed_ms": "committed_at_ms",
        "purged_ms": "purged_at_ms",
    },
    "jobs_outbox": {"retry_ms": "not_before_ms"},
    "federation_objects": {
        "retry_ms": "not_before_ms",
        "created_ms": "created_at_ms",
        "message_ms": "message_at_ms",
    },
    "usage_hours": {"hour_ms": "starts_at_ms"},
}
_INDEX = "ix_usage_hours_organization_id_"


def upgrade() -> None:
    for table, columns in _RENAMES.items():
        for old, new in columns.items():
            op.alter_column(table, old, new_column_name=new)
    op.execute(f"ALTER INDEX {_INDEX}hour_ms RENAME TO {_INDEX}starts_at_ms")


def downgrade() -> None:
    op.execute(f"ALTER INDEX {_INDEX}starts_at_ms RENAME TO {_INDEX}hour_ms")
    for table, columns in _RENAMES.items():
        for old, new in columns.items():
            op.alter_column(table, new, new_column_name=old)
