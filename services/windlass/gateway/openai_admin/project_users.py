"""/v1/organization/projects/{project_id}/users."""

from typing import Annotated

from pydantic import Field

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.errors import InvalidArgument
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.openai_admin import members
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter

_PERSON = pb.MEMBER_KIND_PERSON
Id = Annotated[str, Field(min_length=1)]


class NewProjectUser(Body):
    """A person who joins a project, by their id or address."""

    role: str
    user_id: Id | None = None
    email: Id | None = None


class ProjectUserSettings(Body):
    """Settings of a person in a project; those left out stay."""

    role: str | None = None


def project_users_router(app: App) -> ResourceRouter:
    """People of a project."""
    router = ResourceRouter(
        prefix="/organization/projects/{project_id}/users", tags=["administration"]
    )
    users = app.clients.stub(rpc.UsersServiceStub)

    async def put(project_id: str, role: str, *, user_id: str = "", email: str = "") -> Json:
        request = pb.PutMemberRequest(
            project_id=project_id,
            user_id=user_id,
            email=email,
            role=members.role_number(role, of_project=True),
            kind=_PERSON,
        )
        return members.render_project_user(await users.PutMember(request))

    @router.post("")
    async def create_project_user(project_id: str, body: NewProjectUser) -> Json:
        """Adds a person to a project.

        An address means the person of the organization who has it, or else becomes an id.
        """
        if (body.user_id is None) == (body.email is None):
            raise InvalidArgument("Give either user_id or email.", param="user_id")
        user_id, email = body.user_id or "", body.email or ""
        return await put(project_id, body.role, user_id=user_id, email=email)

    @router.get("")
    async def list_project_users(project_id: str, after: After = "", limit: Limit = 0) -> Json:
        """People of a project, newest first."""
        answer = await users.ListMembers(
            pb.ListMembersRequest(project_id=project_id, kind=_PERSON, after=after, limit=limit)
        )
        return page([members.render_project_user(one) for one in answer.members], answer.has_more)

    @router.get("/{user_id}")
    async def get_project_user(project_id: str, user_id: str) -> Json:
        """Returns one person of a project."""
        return members.render_project_user(await members.get(users, project_id, user_id, _PERSON))

    @router.post("/{user_id}")
    async def update_project_user(project_id: str, user_id: str, body: ProjectUserSettings) -> Json:
        """Changes the role of a person in a project."""
        member = await members.get(users, project_id, user_id, _PERSON)
        if body.role is None:
            return members.render_project_user(member)
        return await put(project_id, body.role, user_id=user_id)

    @router.delete("/{user_id}")
    async def delete_project_user(project_id: str, user_id: str) -> Json:
        """Removes a person from a project; their keys there end."""
        await members.get(users, project_id, user_id, _PERSON)
        await users.RemoveMember(pb.RemoveMemberRequest(project_id=project_id, user_id=user_id))
        return {"id": user_id, "object": "organization.project.user.deleted", "deleted": True}

    return router
