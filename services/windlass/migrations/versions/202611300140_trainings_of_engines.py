"""Train engines in their own memory.

Revision ID: 202611300140
Revises: 202611300120
Create Date: 2026-11-30 01:40:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611300140"
down_revision = "202611300120"
branch_labels = None
depends_on = None

_TRAININGS, _STEPS = "inference_trainings", "inference_training_steps"
_TEXTS = (
    "user_id", "key_id", "model", "version_id", "suffix", "mode", "state", "reason", "message",
    "engine_id", "cluster_id", "checkpoint_model",
)  # fmt: skip


def upgrade() -> None:
    for table in ("inference_engines", "inference_servings"):
        op.add_column(table, sa.Column("training", sa.Text(), server_default="", nullable=False))
    op.create_table(
        _TRAININGS,
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _TEXTS),
        sa.Column("idempotency_key", sa.Text()),
        *(sa.Column(name, sa.LargeBinary(), nullable=False) for name in ("digest", "body")),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("tokens", "total_steps", "steps", "generation", "put_generation")
        ),
        *(
            sa.Column(name, sa.Boolean(), nullable=False)
            for name in ("is_cancelled", "is_saved", "is_counted")
        ),
        sa.Column("loss", sa.Double()),
        *(
            sa.Column(name, sa.Double(), nullable=False)
            for name in ("created_at", "urls_at", "finished_at")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{_TRAININGS}")),
        sa.UniqueConstraint(
            "project_id",
            "idempotency_key",
            name=op.f(f"uq_{_TRAININGS}_project_id_idempotency_key"),
        ),
    )
    for column in ("organization_id", "project_id", "version_id", "engine_id"):
        op.create_index(f"ix_{_TRAININGS}_{column}", _TRAININGS, [column])
    op.create_table(
        _STEPS,
        sa.Column("training_id", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("loss", sa.Double(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("training_id", "step", name=op.f(f"pk_{_STEPS}")),
    )
    op.create_index(f"ix_{_STEPS}_project_id", _STEPS, ["project_id"])


def downgrade() -> None:
    op.drop_table(_STEPS)
    op.drop_table(_TRAININGS)
    for table in ("inference_servings", "inference_engines"):
        op.drop_column(table, "training")
