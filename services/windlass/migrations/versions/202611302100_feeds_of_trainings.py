"""Answers that requests consent to have kept feed the trainings of engines.

Revision ID: 202611302100
Revises: 202611301900
Create Date: 2026-11-30 21:00:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611302100"
down_revision = "202611301900"
branch_labels = None
depends_on = None

_FEEDS, _ANSWERS, _PROJECTS = "inference_feeds", "inference_fed_answers", "users_projects"


def upgrade() -> None:
    op.add_column(
        _PROJECTS,
        sa.Column("keeps_answers", sa.Boolean(), server_default="false", nullable=False),
    )
    op.create_table(
        _FEEDS,
        sa.Column("id", sa.Text(), primary_key=True),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _TEXTS),
        sa.Column("key_ids", postgresql.JSONB(), nullable=False),
        sa.Column("grader", sa.LargeBinary(), nullable=False),
        sa.Column("guard", sa.LargeBinary(), nullable=False),
        sa.Column("spent", postgresql.JSONB(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _NUMBERS),
        *(sa.Column(name, sa.Double(), nullable=False) for name in _DOUBLES),
        sa.Column("lease_owner", sa.Text()),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.UniqueConstraint("project_id", "model"),
    )
    op.create_index(f"ix_{_FEEDS}_organization_id", _FEEDS, ["organization_id"])
    op.create_index(f"ix_{_FEEDS}_due_at", _FEEDS, ["due_at"])
    op.create_table(
        _ANSWERS,
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("feed_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("item", sa.LargeBinary(), nullable=False),
        sa.Column("sample", sa.LargeBinary(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("score", sa.Double()),
        sa.Column("training_key", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
    )
    op.create_index(f"ix_{_ANSWERS}_project_id", _ANSWERS, ["project_id"])
    op.create_index(f"ix_{_ANSWERS}_feed", _ANSWERS, ["feed_id", "created_at", "id"])


_TEXTS = (
    "organization_id", "project_id", "user_id", "key_id", "model", "optimizer", "message",
)  # fmt: skip
_NUMBERS = ("hourly", "batch", "kept", "refused", "trained", "removed", "turned_away")
_DOUBLES = ("least_score", "learning_rate", "created_at", "updated_at", "due_at", "retry_at")


def downgrade() -> None:
    op.drop_table(_ANSWERS)
    op.drop_table(_FEEDS)
    op.drop_column(_PROJECTS, "keeps_answers")
