"""Access to exports: owners have the organization's, each person has those about them."""

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.errors import PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.policy import ORGANIZATION_OWNER, PLATFORM, PROJECTS, permissions_of, roles_with
from windlass.users.tables import members

# The subject of an organization's own exports.
WHOLE = ""


class ExportAccess:
    """Subjects of exports that a caller may have."""

    def __init__(self, database: Database):
        self._database = database

    async def owner(self, principal: Principal) -> str:
        """The organization as a subject; raises PermissionDenied unless the caller owns it."""
        _require_strong(principal)
        if not await self._owns(principal):
            raise PermissionDenied("Only an owner of the organization exports it.")
        if permissions_of((ORGANIZATION_OWNER,)) - principal.permissions:
            raise PermissionDenied("A key with scopes does not export the organization.")
        return WHOLE

    async def person(self, principal: Principal) -> str:
        """The caller as a subject; raises PermissionDenied for a credential of lesser powers."""
        _require_strong(principal)
        if not principal.user_id:
            raise PermissionDenied("Only a person exports what is known of them.")
        here = sa.select(members.c.role).where(
            members.c.organization_id == principal.organization_id,
            members.c.user_id == principal.user_id,
        )
        async with self._database.autocommit() as connection:
            roles = (await connection.execute(here)).scalars().all()
        if permissions_of((*roles, *principal.roles)) - principal.permissions:
            raise PermissionDenied(
                "Use a session, or a key that may all that you may: this one is for less."
            )
        return principal.user_id

    async def subjects(self, principal: Principal) -> list[str]:
        """All subjects of the caller; raises PermissionDenied if there is none."""
        try:
            found = [await self.owner(principal)]
        except PermissionDenied:
            return [await self.person(principal)]
        return [*found, await self.person(principal)]

    async def _owns(self, principal: Principal) -> bool:
        if ORGANIZATION_OWNER in principal.roles:
            return True
        if not principal.may(PLATFORM):
            return False
        # Who administers the platform reaches every organization, and owns those where they are.
        return await self._database.ask(
            sa.exists().where(
                members.c.organization_id == principal.organization_id,
                members.c.project_id == "",
                members.c.user_id == principal.user_id,
                members.c.role.in_(roles_with(PROJECTS)),
            )
        )


def _require_strong(principal: Principal) -> None:
    if principal.is_weakened:
        raise PermissionDenied(
            "Sign in anew as your organization asks of administrators: windlass auth login --web "
            "--fresh.",
            reason="sign_in_too_weak",
        )
