"""Roles that an organization or a project makes, and who has them.

At `/v1/organization` and `/v1/projects/{project_id}`, each with `/roles`, `/users/{user_id}/roles`
and `/groups/{group_id}/roles`.
"""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Path
from pydantic import Field

from windlass.api.users.v1 import roles_pb2 as pb
from windlass.api.users.v1 import roles_pb2_grpc as rpc
from windlass.bounds import (
    DESCRIPTION_LENGTH,
    MAX_ROLE_PERMISSIONS,
    TITLE_LENGTH,
)
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json
from windlass.gateway.openai_admin.roles.held import add_held_roles
from windlass.gateway.openai_admin.roles.rendering import Order, page, render_role, unknown_role
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter
from windlass.policy import PERMISSIONS

Name = Annotated[str, Field(min_length=1, max_length=TITLE_LENGTH)]
Description = Annotated[str, Field(max_length=DESCRIPTION_LENGTH)]
Permissions = Annotated[
    list[Annotated[str, Field(json_schema_extra={"enum": sorted(PERMISSIONS)})]],
    Field(min_length=1, max_length=MAX_ROLE_PERMISSIONS),
]


class NewRole(Body):
    """Permissions under a name."""

    role_name: Name
    permissions: Permissions
    description: Description | None = None


class RoleSettings(Body):
    """Settings of a role; those left out stay."""

    role_name: Name | None = None
    permissions: Permissions | None = None
    description: Description | None = None


# Coroutines, since FastAPI would run plain functions in a thread.
async def _organization() -> str:
    return ""


async def _project(project_id: Annotated[str, Path()]) -> str:
    return project_id


def organization_roles_router(app: App) -> ResourceRouter:
    """Roles of the organization."""
    return _router(app, "organization", "/organization", _organization)


def project_roles_router(app: App) -> ResourceRouter:
    """Roles of a project."""
    return _router(app, "project", "/projects/{project_id}", _project)


def _router(app: App, kind: str, prefix: str, where: Callable[..., Any]) -> ResourceRouter:
    router = ResourceRouter(prefix=prefix, tags=["administration"])
    _add_roles(router, kind, Depends(where), app.clients.stub(rpc.RolesServiceStub))
    add_held_roles(router, app, f"{kind}_user", of="user", where=Depends(where))
    add_held_roles(router, app, f"{kind}_group", of="group", where=Depends(where))
    return router


def _add_roles(
    router: ResourceRouter, kind: str, where: Any, roles: rpc.RolesServiceAsyncStub
) -> None:
    async def find(project_id: str, role_id: str) -> pb.CustomRole:
        role = await roles.GetRole(pb.GetRoleRequest(role_id=role_id))
        if role.project_id != project_id:
            raise unknown_role(role_id)
        return role

    @router.post("/roles", name=f"create_{kind}_role")
    async def create_role(body: NewRole, project_id: str = where) -> Json:
        """A new role."""
        request = pb.CreateRoleRequest(
            project_id=project_id,
            name=body.role_name,
            description=body.description or "",
            permissions=body.permissions,
        )
        return render_role(await roles.CreateRole(request))

    @router.get("/roles", name=f"list_{kind}_roles")
    async def list_roles(
        after: After = "", limit: Limit = 0, order: Order = "asc", project_id: str = where
    ) -> Json:
        """Roles, by their creation."""
        answer = await roles.ListCustomRoles(
            pb.ListCustomRolesRequest(
                project_id=project_id, after=after, limit=limit, oldest_first=order == "asc"
            )
        )
        return page([render_role(role) for role in answer.roles], answer.has_more)

    @router.get("/roles/{role_id}", name=f"get_{kind}_role")
    async def get_role(role_id: str, project_id: str = where) -> Json:
        """Returns one role."""
        return render_role(await find(project_id, role_id))

    @router.post("/roles/{role_id}", name=f"update_{kind}_role")
    async def update_role(role_id: str, body: RoleSettings, project_id: str = where) -> Json:
        """Changes a role; the keys of those who have it follow within a second."""
        await find(project_id, role_id)
        request = pb.UpdateRoleRequest(
            role_id=role_id, name=body.role_name, description=body.description
        )
        if body.permissions is not None:
            request.permissions.CopyFrom(pb.RolePermissions(names=body.permissions))
        return render_role(await roles.UpdateRole(request))

    @router.delete("/roles/{role_id}", name=f"delete_{kind}_role")
    async def delete_role(role_id: str, project_id: str = where) -> Json:
        """Removes a role, and takes it from all who have it."""
        await find(project_id, role_id)
        await roles.DeleteRole(pb.DeleteRoleRequest(role_id=role_id))
        return {"id": role_id, "object": "role.deleted", "deleted": True}
