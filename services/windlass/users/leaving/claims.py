"""Claims of the tables of users, and of quotas, which users sets."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from windlass.core.exporting.tables import ROOT, export_parts, export_steps, exports
from windlass.core.leaving.claims import (
    LeavingClaims,
    ObjectClaim,
    Scope,
    TableClaim,
    Where,
    erased,
    erased_with,
    ids_alone,
    nobodys,
)
from windlass.core.quotas import bounds, stored
from windlass.users import tables
from windlass.users.client_demands import tables as trusted
from windlass.users.identity import tables as sign_in
from windlass.users.mail.tables import mails
from windlass.users.session_strength import tables as strength


def _of_scope(table: sa.Table) -> TableClaim:
    """Rows by the id of a project or an organization."""

    def rows(scope: Scope) -> sa.ColumnElement[bool]:
        projects = scope.has_project(table.c.scope_id)
        whole = table.c.scope_id == scope.organization_id
        return sa.or_(projects, whole) if scope.whole else projects

    return erased(table, rows)


def _copies(scope: Scope) -> sa.Select[tuple[str]]:
    """Exports of a whole organization that leaves; those of others end before (`ExportsEnd`)."""
    ids = sa.literal([scope.organization_id] if scope.whole else [], ARRAY(sa.Text))
    return sa.select((ROOT + "/" + sa.func.unnest(ids) + "/").label("prefix"))


_COPY = "it is a copy itself"


def _organization(column: sa.Column[str]) -> Where:
    return lambda scope: column == scope.organization_id if scope.whole else None


CLAIMS = LeavingClaims(
    "users",
    (
        erased(tables.api_keys),
        nobodys(tables.key_changes, "ids of keys, for an hour"),
        erased(tables.key_policies, _organization(tables.key_policies.c.id)),
        erased(tables.secrets),
        erased_with(tables.group_members.c.group_id, tables.groups),
        erased(tables.role_assignments),
        erased(tables.groups),
        erased(tables.roles),
        erased(tables.members),
        erased(tables.people),
        # The issuer's own id of a session ends it.
        erased(strength.sessions).hiding("issuer_session"),
        erased(strength.sign_in_policies, _organization(strength.sign_in_policies.c.id)),
        erased(tables.directories, _organization(tables.directories.c.id)),
        erased(tables.federation_rules),
        erased(tables.workload_providers),
        erased(tables.elevations),
        erased(tables.model_policies, lambda scope: scope.has_project(tables.model_policies.c.id)),
        # Whatever they have sealed nothing opens from then on.
        erased(tables.object_keys),
        erased(tables.data_keys),
        erased(tables.external_keys),
        erased(trusted.active_certificates),
        erased(trusted.certificates),
        erased(trusted.allowed_networks, _organization(trusted.allowed_networks.c.id)),
        erased(sign_in.identities),
        erased(sign_in.identity_providers),
        erased(sign_in.invites),
        erased(sign_in.mail_domains),
        erased(mails).hiding("sealed"),
        nobodys(sign_in.sign_in_codes, "they go within minutes"),
        nobodys(sign_in.sign_in_questions, "they go within minutes"),
        nobodys(sign_in.device_sign_ins, "they go within minutes"),
        erased_with(export_parts.c.export_id, exports).not_exported(_COPY),
        erased_with(export_steps.c.export_id, exports).not_exported(_COPY),
        erased(exports).not_exported(_COPY),
        _of_scope(bounds),
        _of_scope(stored),
        ids_alone(
            tables.projects,
            lambda scope: scope.has_project(tables.projects.c.id),
            why="the id that audit and accounting name",
            title=tables.projects.c.id,
        ),
        ids_alone(
            tables.organizations,
            _organization(tables.organizations.c.id),
            why="the id that audit and accounting name",
            title="",
        ),
    ),
    (ObjectClaim(ROOT, _copies, unexported=_COPY),),
)
