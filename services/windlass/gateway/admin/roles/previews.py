"""`/roles/{role_id}/preview` of `/v1/organization` and `/v1/projects/{project_id}`."""

from typing import Annotated, Literal

from pydantic import Field

from windlass.api.users.v1 import roles_pb2 as pb
from windlass.api.users.v1 import roles_pb2_grpc as rpc
from windlass.bounds import MAX_KEY_SECONDS, MAX_ROLE_PERMISSIONS, USER_ID_LENGTH
from windlass.core.app import App
from windlass.core.errors import InvalidArgument, NotFound
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.openai.rendering import Json
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter
from windlass.policy import PERMISSIONS

Change = Literal["update", "delete", "give", "take"]
# What each change takes beside its role.
_TAKES: dict[Change, frozenset[str]] = {
    "update": frozenset({"permissions"}),
    "delete": frozenset(),
    "give": frozenset({"user_id", "group_id", "expires_in_seconds"}),
    "take": frozenset({"user_id", "group_id"}),
}


class ChangeOfRole(Body):
    """A change of a role, or of who has it."""

    change: Change
    permissions: (
        Annotated[
            list[Annotated[str, Field(json_schema_extra={"enum": sorted(PERMISSIONS)})]],
            Field(min_length=1, max_length=MAX_ROLE_PERMISSIONS),
        ]
        | None
    ) = None
    user_id: Annotated[str, Field(min_length=1, max_length=USER_ID_LENGTH)] | None = None
    group_id: Annotated[str, Field(min_length=1, max_length=IDENTIFIER_LENGTH)] | None = None
    expires_in_seconds: Annotated[int, Field(ge=1, le=MAX_KEY_SECONDS)] | None = None

    def request(self, role_id: str, project_id: str) -> pb.PreviewRoleRequest:
        """The question about this change; raises InvalidArgument for what it does not take."""
        for name in self.model_fields_set - {"change"} - _TAKES[self.change]:
            raise InvalidArgument(f"{name} is not for the change {self.change}.", param=name)
        if self.change == "update":
            permissions = pb.RolePermissions(names=self.permissions or ())
            update = pb.UpdateRoleRequest(role_id=role_id, permissions=permissions)
            return pb.PreviewRoleRequest(update=update)
        if self.change == "delete":
            return pb.PreviewRoleRequest(delete=pb.DeleteRoleRequest(role_id=role_id))
        user_id, group_id = self.user_id or "", self.group_id or ""
        if self.change == "take":
            unassign = pb.UnassignRoleRequest(
                role_id=role_id, project_id=project_id, user_id=user_id, group_id=group_id
            )
            return pb.PreviewRoleRequest(unassign=unassign)
        assign = pb.AssignRoleRequest(
            role_id=role_id,
            project_id=project_id,
            user_id=user_id,
            group_id=group_id,
            expires_in=self.expires_in_seconds or 0,
        )
        return pb.PreviewRoleRequest(assign=assign)


def role_previews_router(app: App) -> ResourceRouter:
    """Previews of changes of roles."""
    router = ResourceRouter(tags=["members"])
    roles = app.clients.stub(rpc.RolesServiceStub)

    async def preview(
        role_id: str, project_id: str, body: ChangeOfRole, after: str, limit: int
    ) -> Json:
        if body.change in ("update", "delete"):
            role = await roles.GetRole(pb.GetRoleRequest(role_id=role_id))
            if role.project_id != project_id:
                raise NotFound(f"No role {role_id!r}.", param="role_id")
        request = body.request(role_id, project_id)
        request.after, request.limit = after, limit
        answer = await roles.PreviewRole(request)
        return {
            "object": "role.preview",
            "data": [plain(one) for one in answer.holders],
            "has_more": answer.has_more,
            "last_id": answer.holders[-1].user_id if answer.holders else None,
            "keys": [plain(one) for one in answer.keys],
            "has_more_keys": answer.has_more_keys,
        }

    @router.post("/organization/roles/{role_id}/preview")
    async def preview_organization_role(
        role_id: str, body: ChangeOfRole, after: After = "", limit: Limit = 0
    ) -> Json:
        """Lists who and which keys would gain or lose by a change of a role or its holders."""
        return await preview(role_id, "", body, after, limit)

    @router.post("/projects/{project_id}/roles/{role_id}/preview")
    async def preview_project_role(
        project_id: str, role_id: str, body: ChangeOfRole, after: After = "", limit: Limit = 0
    ) -> Json:
        """Lists who and which keys would gain or lose by a change of a role or its holders."""
        return await preview(role_id, project_id, body, after, limit)

    return router
