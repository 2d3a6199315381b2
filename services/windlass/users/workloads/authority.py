"""Power to decide whose tokens are taken: nobody gives beyond their own."""

from collections.abc import Sequence

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.policy import MEMBERS, PROJECT_OWNER, SELF, narrowed, permissions_of
from windlass.users.domain import ApiKey, require_role
from windlass.users.keys.store import key_of
from windlass.users.membership.store import MemberStore
from windlass.users.tables import api_keys, members


class RuleAuthority:
    """Judges changes of providers and rules. What these give outlasts the key of the call."""

    def __init__(self, database: Database, store: MemberStore):
        self._database = database
        self._members = store

    async def for_provider(self, principal: Principal) -> tuple[str, ...]:
        """The people on whom a provider rests that the caller changes now.

        Its keys decide whose tokens are taken by any of its rules, so that it takes all that a
        rule may give. Raises PermissionDenied.
        """
        key = await self._whole(principal)
        if key is not None and key.scopes:
            raise PermissionDenied("A key with scopes cannot change identity providers.")
        require_role(principal.roles, PROJECT_OWNER)
        _require_power(principal, permissions_of((PROJECT_OWNER,)))
        return _people(principal, key)

    async def for_rule(
        self, principal: Principal, project_id: str, account_id: str, scopes: Sequence[str]
    ) -> tuple[str, ...]:
        """The people on whom a rule rests that the caller makes or changes now.

        As one who makes a key for the account, the caller administers it and has what the rule
        gives. Raises PermissionDenied, and InvalidArgument where there is no such account.
        """
        if not principal.may(MEMBERS):
            raise PermissionDenied("Only owners let workloads in.")
        key = await self._whole(principal)
        role = await self.role_of(principal.organization_id, project_id, account_id)
        held = await self._members.held(principal.organization_id, project_id, account_id)
        for one in sorted(held):
            require_role(principal.roles, one)
        if key is not None and key.scopes and not scopes:
            raise PermissionDenied(
                "A key with scopes makes rules with scopes alone: set permissions to restricted."
            )
        _require_power(principal, narrowed(permissions_of((role,)), scopes))
        return _people(principal, key)

    async def role_of(self, organization_id: str, project_id: str, account_id: str) -> str:
        """The role of a service account in a project; raises InvalidArgument for no such one."""
        query = sa.select(members.c.role).where(
            members.c.organization_id == organization_id,
            members.c.project_id == project_id,
            members.c.user_id == account_id,
            members.c.kind == "service_account",
        )
        async with self._database.autocommit() as connection:
            role = (await connection.execute(query)).scalar()
        if role is None or not project_id:
            raise InvalidArgument(
                "There is no such service account in this project.", param="service_account_id"
            )
        return str(role)

    async def _whole(self, principal: Principal) -> ApiKey | None:
        """The caller's key, which is narrowed to no networks and models; None without one.

        Raises PermissionDenied for a narrower one, and for a workload's token or what was made
        with one: they end in minutes, and a rule does not.
        """
        line = api_keys.select().where(api_keys.c.id == principal.key_id).cte(recursive=True)
        above = line.union(api_keys.select().join(line, api_keys.c.id == line.c.parent_key_id))
        async with self._database.autocommit() as connection:
            keys = [key_of(row) for row in await connection.execute(sa.select(above))]
        if any(key.kind == "token" for key in keys):
            raise PermissionDenied("A workload's token cannot let other workloads in.")
        own = next((key for key in keys if key.id == principal.key_id), None)
        if own is not None and (own.networks or own.models):
            raise PermissionDenied("A key of some networks or models cannot let workloads in.")
        return own


def _people(principal: Principal, key: ApiKey | None) -> tuple[str, ...]:
    above = {key.user_id, key.made_by, *key.rests_on} if key is not None else set()
    return tuple(sorted({principal.user_id, *above} - {""}))


def _require_power(principal: Principal, permissions: frozenset[str]) -> None:
    own = principal.permissions & permissions_of(principal.roles)
    if missing := sorted(permissions - own - {SELF}):
        raise PermissionDenied(
            f"Your role or your key does not have {', '.join(missing)}, which this would give."
        )
