"""The tables of users."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from windlass.core.db import metadata
from windlass.core.db.leases import lease_columns

organizations = sa.Table(
    "users_organizations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("deleted_at", sa.BigInteger, nullable=False, server_default="0"),
    # Of a legal hold, which stops erasures.
    sa.Column("held_at", sa.BigInteger, nullable=False, server_default="0"),
)
projects = sa.Table(
    "users_projects",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("archived_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("is_default", sa.Boolean, nullable=False, server_default="false"),
    # Empty: the installation's root key wraps its data key.
    sa.Column("external_key_id", sa.Text, nullable=False, server_default=""),
    # Of its creation; empty: its data may be anywhere.
    sa.Column("geography", sa.Text, nullable=False, server_default=""),
    # What a request consents to have kept may be kept; false: zero data retention.
    sa.Column("keeps_answers", sa.Boolean, nullable=False, server_default="false"),
    sa.Index(None, "organization_id", "id"),
    sa.Index("ix_users_projects_geography", "id", postgresql_where=sa.text("geography <> ''")),
    sa.UniqueConstraint("organization_id", "title"),
)
members = sa.Table(
    "users_members",
    metadata,
    sa.Column("organization_id", sa.Text, primary_key=True),
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False, server_default="person"),
    sa.Column("title", sa.Text, nullable=False, server_default=""),
    sa.Index(None, "user_id"),
    sa.Index(
        "ix_users_members_by_creation", "organization_id", "project_id", "created_at", "user_id"
    ),
    sa.Index("ix_users_members_lower_user_id", "organization_id", sa.text("lower(user_id)")),
)
api_keys = sa.Table(
    "users_api_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("redacted", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("revoked_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("last_used_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("made_by", sa.Text, nullable=False, server_default=""),
    sa.Column("parent_key_id", sa.Text, nullable=False, server_default=""),
    sa.Column("rests_on", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("scopes", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("networks", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("models", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("tags", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("last_used_address", sa.Text, nullable=False, server_default=""),
    sa.Column("rotated_at", sa.BigInteger, nullable=False, server_default="0"),
    # The secret of before the last rotation, and its end.
    sa.Column("previous_digest", sa.LargeBinary, unique=True),
    sa.Column("previous_until", sa.BigInteger, nullable=False, server_default="0"),
    # The ends that its owner was told of: its own, and for want of use.
    sa.Column("told_expires_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("told_unused_at", sa.BigInteger, nullable=False, server_default="0"),
    # `key`, `session` of a person who signed in, or `token` in exchange for another's.
    sa.Column("kind", sa.Text, nullable=False, server_default="key"),
    # What gave a workload its token; empty for all else.
    sa.Column("federation_rule_id", sa.Text, nullable=False, server_default=""),
    # Of what its issuer signed, where that token itself is the credential.
    sa.Column("signed_digest", sa.LargeBinary, unique=True),
    sa.Index(None, "organization_id", "project_id", "id"),
    sa.Index("ix_users_api_keys_by_creation", "organization_id", "kind", "created_at", "id"),
    sa.Index(
        None,
        "federation_rule_id",
        "expires_at",
        postgresql_where=sa.text("federation_rule_id <> ''"),
    ),
    sa.Index(
        None,
        "expires_at",
        postgresql_where=sa.text("expires_at > 0 AND kind = 'key' AND revoked_at = 0"),
    ),
    sa.Index(None, "parent_key_id"),
    sa.Index(None, "rests_on", postgresql_using="gin"),
    sa.Index(None, "user_id"),
)
# What an organization knows of a person, a member or not: by a sign-in or its directory.
people = sa.Table(
    "users_people",
    metadata,
    sa.Column("organization_id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("email", sa.Text, nullable=False, server_default=""),
    sa.Column("name", sa.Text, nullable=False, server_default=""),
    # 0: active. Memberships of who is not count for nothing.
    sa.Column("deactivated_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    # What the organization's directory says of them; 0: it does not manage them.
    sa.Column("managed_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("user_name", sa.Text, nullable=False, server_default=""),
    sa.Column("external_id", sa.Text, nullable=False, server_default=""),
    sa.Column("attributes", JSONB, nullable=False, server_default="{}"),
    # Counts changes by the directory.
    sa.Column("version", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index(None, "organization_id", "email"),
    sa.Index(
        "uq_users_people_user_name",
        "organization_id",
        sa.text("lower(user_name)"),
        unique=True,
        postgresql_where=sa.text("user_name <> ''"),
    ),
    # Of whom no directory has said anything, the id is the name.
    sa.Index(
        "ix_users_people_lower_user_id",
        "organization_id",
        sa.text("lower(user_id)"),
        postgresql_where=sa.text("user_name = ''"),
    ),
)
# Organizations whose people a directory provisions by SCIM; by the organization's id.
directories = sa.Table(
    "users_directories",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    # Of people whom it provisions; empty: they get no membership.
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)
# Models that a project is for, or is not; by its id.
model_policies = sa.Table(
    "users_model_policies",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    # `allow_list` or `deny_list`.
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("model_ids", ARRAY(sa.Text), nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Index(None, "organization_id"),
)
# By the organization's id.
key_policies = sa.Table(
    "users_key_policies",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("longest_life", sa.BigInteger, nullable=False),
    sa.Column("service_accounts_only", sa.Boolean, nullable=False),
    sa.Column("unused_days", sa.Integer, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    # When its unused keys were looked for last.
    sa.Column("looked_at", sa.BigInteger, nullable=False, server_default="0"),
    *lease_columns(),
)
# What holders of cached keys must hear of: a row per change, of a key or of an organization's all.
key_changes = sa.Table(
    "users_key_changes",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("key_id", sa.Text, nullable=False, server_default=""),
    sa.Column("organization_id", sa.Text, nullable=False, server_default=""),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Index(None, "at"),
)
secrets = sa.Table(
    "users_secrets",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)
# Keys that tenants keep elsewhere; how each is reached is JSON by its kind.
external_keys = sa.Table(
    "users_external_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("place", JSONB, nullable=False),
    # What its keeper asks for, sealed; empty for most.
    sa.Column("credential", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Index(None, "organization_id", "id"),
)
# What projects' secrets are sealed by. One of a project is current, others wait until nothing is
# sealed by them any more.
data_keys = sa.Table(
    "users_data_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    # Empty: wrapped by the root key.
    sa.Column("external_key_id", sa.Text, nullable=False),
    sa.Column("wrapped", sa.Text, nullable=False),
    # What envelopes that it sealed begin with.
    sa.Column("mark", sa.LargeBinary, nullable=False),
    # By which objects are sealed; empty in projects whose key is of before objects were.
    sa.Column("object_key_id", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("retired_at", sa.BigInteger, nullable=False, server_default="0"),
    # Of the current one: it sealed everything that the project has.
    sa.Column("settled", sa.Boolean, nullable=False, server_default="false"),
    sa.Column("retry_at", sa.BigInteger, nullable=False, server_default="0"),
    *lease_columns(),
    sa.Index(
        "ix_users_data_keys_current",
        "project_id",
        unique=True,
        postgresql_where=sa.text("retired_at = 0"),
    ),
    sa.Index(None, "project_id", "mark"),
    sa.Index(None, "external_key_id"),
)

# By which objects of projects are sealed; each is sealed itself by a data key.
object_keys = sa.Table(
    "users_object_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    # A server of the release before removes data keys that seal no secret any more.
    sa.Column("data_key_id", sa.ForeignKey("users_data_keys.id"), nullable=False, index=True),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    # From then on every process knows that objects of the project are sealed.
    sa.Column("usable_at", sa.BigInteger, nullable=False),
)
# Made by tenants of permissions; an empty project: of the organization.
roles = sa.Table(
    "users_roles",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("permissions", ARRAY(sa.Text), nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    # Members of the `project` or of the `organization` may ask for it; empty: nobody.
    sa.Column("elevation_askers", sa.Text, nullable=False, server_default=""),
    sa.Column("elevation_seconds", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("elevation_approvals", sa.Integer, nullable=False, server_default="0"),
    sa.UniqueConstraint("organization_id", "project_id", "name"),
)
role_assignments = sa.Table(
    "users_role_assignments",
    metadata,
    sa.Column("organization_id", sa.Text, primary_key=True),
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("role_id", sa.Text, primary_key=True),
    # One of the two; the other is empty.
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("group_id", sa.Text, primary_key=True),
    sa.Column("ends_at", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("assigned_by", sa.Text, nullable=False),
    sa.Index(None, "role_id"),
    sa.Index(None, "user_id"),
    sa.Index(None, "group_id"),
    sa.Index(None, "ends_at"),
)
# Roles that members asked for, and what came of it.
elevations = sa.Table(
    "users_elevations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("role_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("seconds", sa.BigInteger, nullable=False),
    # `pending`, `approved`, `denied`, `withdrawn` or `ended` by somebody.
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("approvals", sa.Integer, nullable=False),
    sa.Column("approved_by", ARRAY(sa.Text), nullable=False),
    # Everybody who has seen a secret of a key that approved.
    sa.Column("approval_rests_on", ARRAY(sa.Text), nullable=False),
    sa.Column("denied_by", sa.Text, nullable=False),
    sa.Column("comment", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("ends_at", sa.BigInteger, nullable=False),
    sa.Column("closed_at", sa.BigInteger, nullable=False),
    sa.Index(None, "organization_id", "project_id", "created_at"),
    sa.Index(None, "role_id"),
    sa.Index(None, "user_id"),
)
groups = sa.Table(
    "users_groups",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    # 0: the organization's directory does not manage it.
    sa.Column("managed_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("external_id", sa.Text, nullable=False, server_default=""),
    # Counts changes of the group and of who is in it.
    sa.Column("version", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("updated_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.UniqueConstraint("organization_id", "name"),
)
group_members = sa.Table(
    "users_group_members",
    metadata,
    sa.Column("group_id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("added_at", sa.BigInteger, nullable=False),
    sa.Index(None, "user_id"),
)
# Issuers whose tokens workloads exchange.
workload_providers = sa.Table(
    "users_workload_providers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("issuer", sa.Text, nullable=False),
    sa.Column("audience", sa.Text, nullable=False),
    # Empty: the issuer is asked.
    sa.Column("jwks", sa.Text, nullable=False),
    # Pairs of an attribute and an expression.
    sa.Column("transformations", sa.JSON, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    # Whoever changed it last, and all on whom their key rested.
    sa.Column("changed_by", sa.Text, nullable=False),
    sa.Column("rests_on", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Index(None, "organization_id", "id"),
)
# Whose tokens become which service account's.
federation_rules = sa.Table(
    "users_federation_rules",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("provider_id", sa.Text, nullable=False),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("service_account_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("matchers", sa.JSON, nullable=False),
    # Permissions; empty: all of the service account.
    sa.Column("scopes", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("changed_by", sa.Text, nullable=False),
    sa.Column("rests_on", ARRAY(sa.Text), nullable=False, server_default="{}"),
    # Tokens of its issuer are credentials themselves.
    sa.Column("accepts_bearer", sa.Boolean, nullable=False, server_default="false"),
    sa.Index(None, "provider_id", "service_account_id"),
    sa.Index(None, "organization_id", "project_id"),
    sa.Index("ix_users_federation_rules_bearer", "id", postgresql_where=sa.text("accepts_bearer")),
)
