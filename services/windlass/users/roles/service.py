"""The servicer of roles that tenants make."""

from typing import Any

from windlass.api.users.v1 import roles_pb2 as pb
from windlass.api.users.v1 import roles_pb2_grpc as rpc
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.core.ids import new_id
from windlass.core.rpc.auth import Principal, current
from windlass.policy import MEMBERS, PERMISSIONS
from windlass.users.domain import KEYS_TOPIC, valid_title
from windlass.users.roles import messages
from windlass.users.roles.asking import AskedChanges, valid_description
from windlass.users.roles.domain import (
    CustomRole,
    require_power,
    unknown_role,
    valid_permissions,
)
from windlass.users.roles.ends import ROLES_TOPIC
from windlass.users.roles.holders import holders
from windlass.users.roles.preview import Previews
from windlass.users.roles.store import RoleStore
from windlass.users.roster import Roster
from windlass.users.scope import sees_organization

# Of those by which somebody has a permission, in an answer.
MOST_ROLES = 20


class RolesServicer(rpc.RolesServiceServicer):
    """RolesService."""

    def __init__(self, database: Database, roster: Roster, roles: RoleStore, wake: Wake):
        self._database = database
        self._roster = roster
        self._roles = roles
        self._wake = wake
        self._asked = AskedChanges(roster)
        self._previews = Previews(database)

    async def CreateRole(self, request: pb.CreateRoleRequest, context: Any) -> pb.CustomRole:
        """A new role of a project or of the organization."""
        principal = current()
        project_id = await self._asked.scope(principal, request.project_id)
        permissions = valid_permissions(request.permissions, project_id)
        require_power(principal, permissions)
        now = now_seconds()
        role = CustomRole(
            new_id("role_"),
            principal.organization_id,
            project_id,
            valid_title(request.name, "name"),
            valid_description(request.description),
            permissions,
            now,
            now,
        )
        return messages.role(await self._roles.create(role))

    async def GetRole(self, request: pb.GetRoleRequest, context: Any) -> pb.CustomRole:
        """Returns one role that the caller may see."""
        return messages.role(await self._seen(current(), request.role_id))

    async def ListCustomRoles(
        self, request: pb.ListCustomRolesRequest, context: Any
    ) -> pb.ListCustomRolesResponse:
        """Roles of a project or of the organization, newest first."""
        principal, size = current(), page_size(request.limit)
        rows = await self._roles.list(
            principal.organization_id,
            await self._visible(principal, request.project_id),
            oldest_first=request.oldest_first,
            after=request.after,
            limit=size + 1,
        )
        page, more = cut(rows, size)
        return pb.ListCustomRolesResponse(roles=map(messages.role, page), has_more=more)

    async def UpdateRole(self, request: pb.UpdateRoleRequest, context: Any) -> pb.CustomRole:
        """Changes a role; the keys of those who have it follow within a second."""
        changed = await self._roles.make(self._asked.update(current(), request))
        self._wake.touch(KEYS_TOPIC)
        return messages.role(changed)

    async def DeleteRole(
        self, request: pb.DeleteRoleRequest, context: Any
    ) -> pb.DeleteRoleResponse:
        """Removes a role, and takes it from all who have it."""
        await self._roles.make(self._asked.delete(current(), request.role_id))
        self._wake.touch(KEYS_TOPIC)
        return pb.DeleteRoleResponse()

    async def AssignRole(self, request: pb.AssignRoleRequest, context: Any) -> pb.RoleAssignment:
        """Gives a role to a member or a group."""
        assigned = await self._roles.make(await self._asked.assign(current(), request))
        self._wake.touch(KEYS_TOPIC)
        self._wake.touch(ROLES_TOPIC)
        return messages.assignment(*assigned)

    async def UnassignRole(
        self, request: pb.UnassignRoleRequest, context: Any
    ) -> pb.UnassignRoleResponse:
        """Takes a role from a member or a group; idempotent."""
        await self._roles.make(await self._asked.unassign(current(), request))
        self._wake.touch(KEYS_TOPIC)
        return pb.UnassignRoleResponse()

    async def PreviewRole(
        self, request: pb.PreviewRoleRequest, context: Any
    ) -> pb.PreviewRoleResponse:
        """Returns who and which keys would gain or lose by a change, which is not made."""
        principal, size = current(), page_size(request.limit)
        if not principal.may(MEMBERS):
            raise PermissionDenied("Only who may change roles sees what a change would do.")
        change, subject = await self._asked.any_of(principal, request)
        found = await self._previews.of(change, subject, after=request.after, limit=size)
        return messages.preview(found)

    async def ListRoleAssignments(
        self, request: pb.ListRoleAssignmentsRequest, context: Any
    ) -> pb.ListRoleAssignmentsResponse:
        """Lists who has which roles in a project, or in all of the organization."""
        principal, size = current(), page_size(request.limit)
        role_id, user_id, group_id = (*request.after.split("/"), "", "")[:3]
        rows = await self._roles.assignments(
            principal.organization_id,
            await self._visible(principal, request.project_id),
            role_id=request.role_id,
            user_id=request.user_id,
            group_id=request.group_id,
            after=(role_id, user_id, group_id) if request.after else None,
            descending=request.descending,
            limit=size + 1,
        )
        page, more = cut(rows, size)
        shown = [messages.assignment(*one) for one in page]
        return pb.ListRoleAssignmentsResponse(assignments=shown, has_more=more)

    async def ListHolders(
        self, request: pb.ListHoldersRequest, context: Any
    ) -> pb.ListHoldersResponse:
        """Lists who has a permission in a project, or in all of the organization."""
        principal, size = current(), page_size(request.limit)
        if request.permission not in PERMISSIONS:
            raise InvalidArgument(
                f"{request.permission[:100]!r} is not a permission. See "
                "docs/reference/permissions.md.",
                param="permission",
            )
        found = await holders(
            self._database,
            request.permission,
            (
                principal.organization_id,
                await self._visible(principal, request.project_id),
            ),
            after=request.after,
            limit=size + 1,
        )
        page, more = cut(list(found.items()), size)
        # Of many roles, those that fit.
        shown = [pb.PermissionHolder(user_id=user_id, by=by[:MOST_ROLES]) for user_id, by in page]
        return pb.ListHoldersResponse(holders=shown, has_more=more)

    async def _seen(self, principal: Principal, role_id: str) -> CustomRole:
        """A role that the caller may see; raises NotFound."""
        role = await self._roles.get(principal.organization_id, role_id)
        if role.project_id not in ("", principal.project_id) and not sees_organization(principal):
            raise unknown_role(role_id)
        return role

    async def _visible(self, principal: Principal, project_id: str) -> str:
        """A project that the caller may see; the organization's roles are for all of it to see."""
        return await self._roster.seen_scope(principal, project_id) if project_id else ""
