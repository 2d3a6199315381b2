"""/v1/organization/users."""

from fastapi import Depends, Request

from windlass.api.users.v1 import roles_pb2, roles_pb2_grpc
from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.errors import PermissionDenied
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.openai_admin import members
from windlass.gateway.openai_admin.unsupported import require_unset, require_unset_beside
from windlass.gateway.parameters import After, Body, Limit, bracketed
from windlass.gateway.resource_router import ResourceRouter
from windlass.policy import ALL_PROJECTS, PROJECTS

_ANY = pb.MEMBER_KIND_UNSPECIFIED


class UserSettings(Body):
    """Settings of a member; those left out stay."""

    role: str | None = None
    role_id: str | None = None
    developer_persona: str | None = None
    technical_level: str | None = None


# Coroutines, since FastAPI would run plain functions in a thread. Without them a call of who
# administers a project would mean the members of that project.
async def _sees_all(request: Request) -> None:
    _require(request, ALL_PROJECTS)


async def _owns(request: Request) -> None:
    _require(request, PROJECTS)


def _require(request: Request, permission: str) -> None:
    if not request.state.exchange.caller.may(permission):
        raise PermissionDenied(f"This needs the permission {permission}.")


def organization_users_router(app: App) -> ResourceRouter:
    """Members of the organization."""
    router = ResourceRouter(
        prefix="/organization/users", tags=["administration"], dependencies=[Depends(_sees_all)]
    )
    users = app.clients.stub(rpc.UsersServiceStub)
    roles = app.clients.stub(roles_pb2_grpc.RolesServiceStub)

    @router.get("")
    async def list_organization_users(
        request: Request, after: After = "", limit: Limit = 0
    ) -> Json:
        """Members of the organization, newest first; with `emails`, those with these addresses."""
        wanted = bracketed(request, "emails")
        answer = await users.ListMembers(
            pb.ListMembersRequest(emails=wanted, after=after, limit=limit)
        )
        return page([members.render_user(one) for one in answer.members], answer.has_more)

    @router.get("/{user_id}")
    async def get_organization_user(user_id: str) -> Json:
        """Returns one member of the organization."""
        return members.render_user(await members.get(users, "", user_id, _ANY))

    @router.post("/{user_id}", dependencies=[Depends(_owns)])
    async def update_organization_user(user_id: str, body: UserSettings) -> Json:
        """Changes the role of a member of the organization, or gives one more by its id."""
        require_unset(
            developer_persona=body.developer_persona, technical_level=body.technical_level
        )
        member = await members.get(users, "", user_id, _ANY)
        if body.role_id is not None:
            # Two changes are no one change: the second may be refused.
            require_unset_beside("role_id", role=body.role)
            await roles.AssignRole(
                roles_pb2.AssignRoleRequest(role_id=body.role_id, user_id=user_id)
            )
        # Who administers the platform is an owner here, and stays what they are.
        if body.role is not None and body.role != members.role_of(member):
            role = members.role_number(body.role, of_project=False)
            member = await users.PutMember(pb.PutMemberRequest(user_id=user_id, role=role))
        return members.render_user(member)

    @router.delete("/{user_id}", dependencies=[Depends(_owns)])
    async def delete_organization_user(user_id: str) -> Json:
        """Removes a member of the organization and of its projects; their keys end."""
        await members.get(users, "", user_id, _ANY)
        await users.RemoveMember(pb.RemoveMemberRequest(user_id=user_id))
        return {"id": user_id, "object": "organization.user.deleted", "deleted": True}

    return router
