"""Changes as callers ask for them: each with what the caller needs for it."""

from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.users.v1 import roles_pb2 as pb
from windlass.bounds import DESCRIPTION_LENGTH
from windlass.core.clock import now_seconds
from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.users.domain import valid_title, valid_user
from windlass.users.roles import messages
from windlass.users.roles.changes import (
    Change,
    GivenRole,
    assign_role,
    delete_role,
    unassign_role,
    update_role,
)
from windlass.users.roles.domain import (
    CustomRole,
    RoleAssignment,
    require_power,
    unknown_role,
    valid_lifetime,
    valid_permissions,
    valid_rules,
)
from windlass.users.roles.preview import PreviewSubject
from windlass.users.roster import Roster
from windlass.users.scope import owns_organization, sees_organization


class AskedChanges:
    """Checks what callers ask, and returns changes that check the rest where they are made."""

    def __init__(self, roster: Roster):
        self._roster = roster

    def update(self, principal: Principal, request: pb.UpdateRoleRequest) -> Change[CustomRole]:
        """Another name, description or permissions of a role."""

        def change(before: CustomRole) -> CustomRole:
            _require_own(principal, before)
            role = replace(before, updated_at=now_seconds())
            if request.HasField("name"):
                role = replace(role, name=valid_title(request.name, "name"))
            if request.HasField("description"):
                role = replace(role, description=valid_description(request.description))
            if request.HasField("permissions"):
                permissions = valid_permissions(request.permissions.names, role.project_id)
                require_power(principal, permissions)
                role = replace(role, permissions=permissions)
            if request.HasField("elevation"):
                role = _with_rules(role, request.elevation)
            return role

        async def update(connection: AsyncConnection) -> CustomRole:
            return await update_role(connection, principal.organization_id, request.role_id, change)

        return update

    def delete(self, principal: Principal, role_id: str) -> Change[CustomRole]:
        """An end of a role."""

        async def delete(connection: AsyncConnection) -> CustomRole:
            approve = partial(_require_own, principal)
            return await delete_role(connection, principal.organization_id, role_id, approve)

        return delete

    async def assign(
        self, principal: Principal, request: pb.AssignRoleRequest
    ) -> Change[GivenRole]:
        """A role for a member or a group."""
        seconds = valid_lifetime(request.expires_in)
        assignment = RoleAssignment(
            principal.organization_id,
            await self.scope(principal, request.project_id),
            request.role_id,
            *_subject(request),
            now_seconds() + seconds if seconds else 0,
            now_seconds(),
            principal.user_id,
        )

        async def assign(connection: AsyncConnection) -> GivenRole:
            return await assign_role(connection, assignment, partial(_require_given, principal))

        return assign

    async def unassign(
        self, principal: Principal, request: pb.UnassignRoleRequest
    ) -> Change[CustomRole]:
        """A role less for a member or a group."""
        project_id = await self.scope(principal, request.project_id)
        given = RoleAssignment(
            principal.organization_id, project_id, request.role_id, *_subject(request), 0, 0, ""
        )

        async def unassign(connection: AsyncConnection) -> CustomRole:
            return await unassign_role(connection, given, partial(_require_given, principal))

        return unassign

    async def any_of(
        self, principal: Principal, request: pb.PreviewRoleRequest
    ) -> tuple[Change[Any], PreviewSubject]:
        """The one change that a preview asks about, and whom it concerns."""
        organization_id = principal.organization_id
        if request.HasField("update"):
            subject = PreviewSubject(organization_id, request.update.role_id)
            return self.update(principal, request.update), subject
        if request.HasField("delete"):
            subject = PreviewSubject(organization_id, request.delete.role_id)
            return self.delete(principal, request.delete.role_id), subject
        if request.HasField("assign"):
            return await self.assign(principal, request.assign), _place(principal, request.assign)
        if request.HasField("unassign"):
            change = await self.unassign(principal, request.unassign)
            return change, _place(principal, request.unassign)
        raise InvalidArgument("Name a change.", param="change")

    async def scope(self, principal: Principal, project_id: str) -> str:
        """The project that a call may administer, empty for the organization; raises NotFound."""
        if not project_id and not owns_organization(principal):
            raise PermissionDenied(
                "Only owners of the organization make and give its roles. Name your project.",
                param="project_id",
            )
        return await self._roster.scope(principal, project_id)


def valid_description(text: str) -> str:
    """A text of what a role is for; raises InvalidArgument."""
    if len(text) > DESCRIPTION_LENGTH or not text.replace("\n", "").isprintable():
        raise InvalidArgument(
            f"description must have at most {DESCRIPTION_LENGTH} printable characters.",
            param="description",
        )
    return text


def _with_rules(role: CustomRole, rules: pb.ElevationRules) -> CustomRole:
    askers = messages.ASKERS.get(rules.askers)
    if askers is None:
        raise InvalidArgument("askers must be project or organization.", param="askers")
    askers, seconds, approvals = valid_rules(askers, rules.longest_seconds, rules.approvals)
    return replace(
        role, elevation_askers=askers, elevation_seconds=seconds, elevation_approvals=approvals
    )


def _require_own(principal: Principal, role: CustomRole) -> None:
    """Raises unless the caller administers where the role is from, and has its power."""
    own = bool(role.project_id) and role.project_id == principal.project_id
    if not own and not owns_organization(principal):
        raise unknown_role(role.id)
    require_power(principal, role.permissions)


def _require_given(principal: Principal, role: CustomRole) -> None:
    """Raises unless the caller has the power of a role that it may see."""
    if role.project_id not in ("", principal.project_id) and not sees_organization(principal):
        raise unknown_role(role.id)
    require_power(principal, role.permissions)


def _place(
    principal: Principal, request: pb.AssignRoleRequest | pb.UnassignRoleRequest
) -> PreviewSubject:
    return PreviewSubject(
        principal.organization_id,
        request.role_id,
        request.project_id,
        request.user_id,
        request.group_id,
    )


def _subject(request: pb.AssignRoleRequest | pb.UnassignRoleRequest) -> tuple[str, str]:
    """The member or the group that a request names; raises InvalidArgument for none or both."""
    if bool(request.user_id) == bool(request.group_id):
        raise InvalidArgument("Give either user_id or group_id.", param="user_id")
    return valid_user(request.user_id) if request.user_id else "", request.group_id
