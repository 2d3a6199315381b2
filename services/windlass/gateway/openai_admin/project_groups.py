"""/v1/organization/projects/{project_id}/groups: groups that have roles in a project."""

from typing import Annotated, Literal

from pydantic import Field

from windlass.api.users.v1 import groups_pb2 as pb
from windlass.api.users.v1 import groups_pb2_grpc as rpc
from windlass.api.users.v1 import roles_pb2, roles_pb2_grpc
from windlass.core.app import App
from windlass.core.errors import NotFound
from windlass.gateway.openai.rendering import Json
from windlass.gateway.openai_admin.roles.rendering import Order, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter


class NewProjectGroup(Body):
    """A group, and a role that it is given in a project."""

    group_id: Annotated[str, Field(min_length=1)]
    role: Annotated[str, Field(min_length=1)]


def project_groups_router(app: App) -> ResourceRouter:
    """Groups of projects."""
    path = "/organization/projects/{project_id}/groups"
    router = ResourceRouter(prefix=path, tags=["administration"])
    groups = app.clients.stub(rpc.GroupsServiceStub)
    roles = app.clients.stub(roles_pb2_grpc.RolesServiceStub)

    async def find(project_id: str, group_id: str) -> Json:
        request = pb.ListProjectGroupsRequest(project_id=project_id, group_id=group_id, limit=1)
        answer = await groups.ListProjectGroups(request)
        if not answer.groups:
            raise NotFound(f"No group {group_id!r}.", param="group_id")
        return _render(answer.groups[0])

    @router.post("")
    async def add_project_group(project_id: str, body: NewProjectGroup) -> Json:
        """Gives a group a role in a project."""
        request = roles_pb2.AssignRoleRequest(
            role_id=body.role, project_id=project_id, group_id=body.group_id
        )
        await roles.AssignRole(request)
        return await find(project_id, body.group_id)

    @router.get("")
    async def list_project_groups(
        project_id: str, after: After = "", limit: Limit = 0, order: Order = "asc"
    ) -> Json:
        """Groups that have roles in a project, by their ids."""
        request = pb.ListProjectGroupsRequest(
            project_id=project_id, after=after, limit=limit, descending=order == "desc"
        )
        answer = await groups.ListProjectGroups(request)
        return page([_render(one) for one in answer.groups], answer.has_more, "group_id")

    @router.get("/{group_id}")
    async def get_project_group(
        project_id: str, group_id: str, group_type: Literal["group", "tenant_group"] = "group"
    ) -> Json:
        """Returns one group that has roles in a project."""
        if group_type != "group":
            raise NotFound(f"No group {group_id!r}.", param="group_id")
        return await find(project_id, group_id)

    @router.delete("/{group_id}")
    async def remove_project_group(project_id: str, group_id: str) -> Json:
        """Takes all its roles in a project from a group."""
        request = pb.RemoveProjectGroupRequest(project_id=project_id, group_id=group_id)
        await groups.RemoveProjectGroup(request)
        return {"object": "project.group.deleted", "deleted": True}

    return router


def _render(one: pb.ProjectGroup) -> Json:
    return {
        "object": "project.group",
        "project_id": one.project_id,
        "group_id": one.group.id,
        "group_name": one.group.name,
        "group_type": "group",
        "created_at": one.added_at,
    }
