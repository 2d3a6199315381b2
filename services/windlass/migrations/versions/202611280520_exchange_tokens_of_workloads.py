"""Exchange tokens of workloads: providers, federation rules, and which rule gave a token.

Revision ID: 202611280520
Revises: 202611280512
Create Date: 2026-11-28 05:40:00.000000
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "202611280520"
down_revision = "202611280512"
branch_labels = None
depends_on = None


def _texts(name: str) -> sa.Column[list[str]]:
    return sa.Column(name, postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _moment(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False)


def upgrade() -> None:
    op.create_table(
        "users_workload_providers",
        *map(_text, ("id", "organization_id", "name", "description", "issuer", "audience", "jwks")),
        sa.Column("transformations", sa.JSON(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        _moment("created_at"),
        _moment("updated_at"),
        _text("changed_by"),
        _texts("rests_on"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users_workload_providers")),
    )
    op.create_index(
        op.f("ix_users_workload_providers_organization_id_id"),
        "users_workload_providers",
        ["organization_id", "id"],
    )
    op.create_table(
        "users_federation_rules",
        *map(
            _text,
            ("id", "provider_id", "organization_id", "project_id", "service_account_id", "name"),
        ),
        _text("description"),
        sa.Column("matchers", sa.JSON(), nullable=False),
        _texts("scopes"),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        _moment("created_at"),
        _moment("updated_at"),
        _text("changed_by"),
        _texts("rests_on"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users_federation_rules")),
    )
    op.create_index(
        op.f("ix_users_federation_rules_provider_id_service_account_id"),
        "users_federation_rules",
        ["provider_id", "service_account_id"],
    )
    op.create_index(
        op.f("ix_users_federation_rules_organization_id_project_id"),
        "users_federation_rules",
        ["organization_id", "project_id"],
    )
    op.add_column(
        "users_api_keys",
        sa.Column("federation_rule_id", sa.Text(), server_default="", nullable=False),
    )
    op.create_index(
        op.f("ix_users_api_keys_federation_rule_id_expires_at"),
        "users_api_keys",
        ["federation_rule_id", "expires_at"],
        postgresql_where=sa.text("federation_rule_id <> ''"),
    )


def downgrade() -> None:
    op.execute("DELETE FROM users_api_keys WHERE federation_rule_id <> ''")
    op.drop_index(
        op.f("ix_users_api_keys_federation_rule_id_expires_at"), table_name="users_api_keys"
    )
    op.drop_column("users_api_keys", "federation_rule_id")
    op.drop_table("users_federation_rules")
    op.drop_table("users_workload_providers")
