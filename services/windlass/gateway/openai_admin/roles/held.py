"""Roles that members and groups were given, in a project or in all of the organization."""

from typing import Annotated, Any, Literal, NamedTuple

from fastapi import Depends, Path
from pydantic import Field

from windlass.api.users.v1 import groups_pb2, groups_pb2_grpc, users_pb2_grpc
from windlass.api.users.v1 import roles_pb2 as pb
from windlass.api.users.v1 import roles_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.errors import NotFound
from windlass.gateway.openai.rendering import Json
from windlass.gateway.openai_admin import members
from windlass.gateway.openai_admin.keys import Lifetime
from windlass.gateway.openai_admin.roles.rendering import Order, page, render_role, unknown_role
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter


class GivenRole(Body):
    """A role for a member or a group."""

    role_id: Annotated[str, Field(min_length=1)]
    expires_in_seconds: Lifetime | None = None


class RoleHolder(NamedTuple):
    """A member or a group; the other is empty."""

    user_id: str = ""
    group_id: str = ""

    @property
    def cursor(self) -> str:
        """The end of a cursor in the list of its roles."""
        return f"{self.user_id}/{self.group_id}"


# Coroutines, since FastAPI would run plain functions in a thread.
async def _user(user_id: Annotated[str, Path()]) -> RoleHolder:
    return RoleHolder(user_id=user_id)


async def _group(group_id: Annotated[str, Path()]) -> RoleHolder:
    return RoleHolder(group_id=group_id)


class HeldRoles:
    """Roles that were given, and those who have them in OpenAI's shapes."""

    def __init__(self, app: App):
        self.roles: rpc.RolesServiceAsyncStub = app.clients.stub(rpc.RolesServiceStub)
        self._users: users_pb2_grpc.UsersServiceAsyncStub = app.clients.stub(
            users_pb2_grpc.UsersServiceStub
        )
        self._groups: groups_pb2_grpc.GroupsServiceAsyncStub = app.clients.stub(
            groups_pb2_grpc.GroupsServiceStub
        )

    async def find(self, project_id: str, holder: RoleHolder, role_id: str) -> pb.RoleAssignment:
        """Returns a role that a member or a group has; raises NotFound."""
        answer = await self.roles.ListRoleAssignments(
            pb.ListRoleAssignmentsRequest(
                project_id=project_id,
                user_id=holder.user_id,
                group_id=holder.group_id,
                role_id=role_id,
                limit=1,
            )
        )
        if not answer.assignments:
            raise unknown_role(role_id)
        return answer.assignments[0]

    async def shown(self, project_id: str, holder: RoleHolder) -> Json:
        """The member or the group, under its name in OpenAI's answer."""
        if holder.group_id:
            request = groups_pb2.GetGroupRequest(group_id=holder.group_id)
            group = await self._groups.GetGroup(request)
            return {
                "group": {
                    "id": group.id,
                    "object": "group",
                    "name": group.name,
                    "created_at": group.created_at,
                    "scim_managed": False,
                }
            }
        for scope in dict.fromkeys((project_id, "")):
            if found := await members.find(self._users, scope, [holder.user_id]):
                return {"user": members.render_user(found[holder.user_id])}
        raise NotFound(f"No user {holder.user_id!r}.", param="user_id")


def add_held_roles(
    router: ResourceRouter, app: App, name: str, *, of: Literal["user", "group"], where: Any
) -> None:
    """Adds the routes of the roles that members, or groups, have; `where` yields the project."""
    held = HeldRoles(app)
    path = f"/{of}s/{{{of}_id}}/roles"
    whose = Depends(_user if of == "user" else _group)

    @router.post(path, name=f"give_{name}_role")
    async def give_role(
        body: GivenRole, holder: RoleHolder = whose, project_id: str = where
    ) -> Json:
        """Gives a role, or another end to one that was given."""
        request = pb.AssignRoleRequest(
            role_id=body.role_id,
            project_id=project_id,
            user_id=holder.user_id,
            group_id=holder.group_id,
            expires_in=body.expires_in_seconds or 0,
        )
        given = await held.roles.AssignRole(request)
        shown = await held.shown(project_id, holder)
        return {"object": f"{of}.role", "role": render_role(given.role), **shown}

    @router.get(path, name=f"list_{name}_roles")
    async def list_held_roles(
        after: After = "",
        limit: Limit = 0,
        order: Order = "asc",
        holder: RoleHolder = whose,
        project_id: str = where,
    ) -> Json:
        """Roles that were given, by their ids."""
        request = pb.ListRoleAssignmentsRequest(
            project_id=project_id,
            user_id=holder.user_id,
            group_id=holder.group_id,
            after=f"{after}/{holder.cursor}" if after else "",
            limit=limit,
            descending=order == "desc",
        )
        answer = await held.roles.ListRoleAssignments(request)
        return page([_render(given) for given in answer.assignments], answer.has_more)

    @router.get(f"{path}/{{role_id}}", name=f"get_{name}_role")
    async def get_held_role(
        role_id: str, holder: RoleHolder = whose, project_id: str = where
    ) -> Json:
        """Returns one role that was given."""
        return _render(await held.find(project_id, holder, role_id))

    @router.delete(f"{path}/{{role_id}}", name=f"take_{name}_role")
    async def take_role(role_id: str, holder: RoleHolder = whose, project_id: str = where) -> Json:
        """Takes a role."""
        await held.find(project_id, holder, role_id)
        request = pb.UnassignRoleRequest(
            role_id=role_id,
            project_id=project_id,
            user_id=holder.user_id,
            group_id=holder.group_id,
        )
        await held.roles.UnassignRole(request)
        return {"object": f"{of}.role.deleted", "deleted": True}


def _render(given: pb.RoleAssignment) -> Json:
    fields = render_role(given.role)
    del fields["object"]
    kind = "group" if given.group_id else "user"
    return {
        **fields,
        "created_at": given.created_at,
        "created_by": given.assigned_by or None,
        "updated_at": given.role.updated_at,
        "assignment_sources": [
            {"principal_id": given.group_id or given.user_id, "principal_type": kind}
        ],
        # Ours: OpenAI's have no end.
        "metadata": {"ends_at": given.ends_at} if given.ends_at else None,
    }
