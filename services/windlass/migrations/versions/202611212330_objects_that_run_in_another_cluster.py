"""Keep objects that are applied to one cluster and run in another.

Revision ID: 202611212330
Revises: 202611211953
Create Date: 2026-11-21 23:30:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611212330"
down_revision = "202611211953"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "federation_objects",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("deleting", sa.Boolean(), nullable=False),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("worker_name", sa.Text(), nullable=False),
        sa.Column("place", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("told", sa.BigInteger(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=False),
        sa.Column("message_ms", sa.BigInteger(), nullable=False),
        sa.Column("retry_ms", sa.BigInteger(), nullable=False),
        sa.Column("guest", sa.LargeBinary(), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_federation_objects")),
        sa.UniqueConstraint("cluster_id", "uid", name=op.f("uq_federation_objects_cluster_id_uid")),
    )
    op.create_index(
        "ix_federation_objects_waiting",
        "federation_objects",
        ["created_ms"],
        unique=False,
        postgresql_where=sa.text("state = 1"),
    )
    op.create_index(
        "ix_federation_objects_owed",
        "federation_objects",
        ["id"],
        unique=False,
        postgresql_where=sa.text("told < revision"),
    )


def downgrade() -> None:
    op.drop_index("ix_federation_objects_owed", table_name="federation_objects")
    op.drop_index("ix_federation_objects_waiting", table_name="federation_objects")
    op.drop_table("federation_objects")
