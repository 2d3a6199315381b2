"""Choice and order of the keys in a list."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from windlass.core.clock import now_seconds
from windlass.policy import INTO_PROJECTS
from windlass.users.tables import api_keys, members


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """The keys of an organization that a list shows: all, but for what is given."""

    project_id: str = ""
    # Their owner.
    user_id: str = ""
    # One key and what was made with it.
    family_of: str = ""
    # Of no project.
    of_organization: bool = False
    # Neither revoked nor expired.
    is_live: bool = False
    # Those that have each of these.
    tags: frozenset[str] = frozenset()
    # Whether their owners have a role that reaches into the key's project; None: either.
    owner_has_access: bool | None = None
    kind: str = "key"

    def of(self, organization_id: str) -> sa.Select[Any]:
        """The query of the keys, in no order."""
        query = api_keys.select().where(
            api_keys.c.organization_id == organization_id, api_keys.c.kind == self.kind
        )
        if self.project_id:
            query = query.where(api_keys.c.project_id == self.project_id)
        if self.user_id:
            query = query.where(api_keys.c.user_id == self.user_id)
        if self.family_of:
            family = (api_keys.c.id, api_keys.c.parent_key_id)
            query = query.where(sa.or_(*(column == self.family_of for column in family)))
        if self.of_organization:
            query = query.where(api_keys.c.project_id == "")
        if self.is_live:
            ends = api_keys.c.expires_at
            query = query.where(api_keys.c.revoked_at == 0, sa.or_(ends == 0, ends > now_seconds()))
        if self.tags:
            query = query.where(api_keys.c.tags.contains(sorted(self.tags)))
        if self.owner_has_access is not None:
            query = query.where(_owner_has_access() == self.owner_has_access)
        return query


def _owner_has_access() -> sa.ColumnElement[bool]:
    return sa.exists().where(
        members.c.organization_id == api_keys.c.organization_id,
        sa.or_(members.c.project_id == "", members.c.project_id == api_keys.c.project_id),
        members.c.user_id == api_keys.c.user_id,
        members.c.role.in_(INTO_PROJECTS),
    )
