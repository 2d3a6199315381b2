"""/v1/organization/invites, in OpenAI's shape, with links and members who are here already."""

from typing import Annotated, Literal

from pydantic import Field

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.api.users.v1 import sign_in_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2
from windlass.bounds import (
    MAX_INVITE_PROJECTS,
    MAX_INVITE_SECONDS,
    PROVIDER_TEXT_LENGTH,
    USER_ID_LENGTH,
)
from windlass.core.app import App
from windlass.core.clock import now_seconds
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import enum_name
from windlass.gateway.resource_router import ResourceRouter
from windlass.policy import (
    OPENAI_ORGANIZATION_ROLES,
    OPENAI_PROJECT_ROLES,
    openai_role,
)


class ProjectOfInvite(Body):
    """A project, and the role in it."""

    id: Annotated[str, Field(max_length=IDENTIFIER_LENGTH)]
    role: Literal["owner", "member"]


class NewInvite(Body):
    """An invitation of a person, by a mail address or a link."""

    user_id: Annotated[
        str,
        Field(
            max_length=USER_ID_LENGTH,
            description="A member who is here already, and signs in from then on.",
        ),
    ] = ""
    email: Annotated[
        str,
        Field(
            max_length=PROVIDER_TEXT_LENGTH,
            description="Which the person's issuer must have verified; empty: whoever has the "
            "link may come in.",
        ),
    ] = ""
    role: Annotated[
        Literal["owner", "reader"] | None,
        Field(description="In the organization; none: in projects alone."),
    ] = None
    projects: Annotated[list[ProjectOfInvite], Field(max_length=MAX_INVITE_PROJECTS)] = []
    expires_in: Annotated[
        int, Field(ge=0, le=MAX_INVITE_SECONDS, description="Seconds; 0: a week.")
    ] = 0
    mail: Annotated[
        bool | None,
        Field(
            description="Whether the link is mailed to the address; none: where there is one, and "
            "this installation sends mail."
        ),
    ] = None


def invites_router(app: App) -> ResourceRouter:
    """Invites of the organization."""
    router = ResourceRouter(prefix="/organization/invites", tags=["administration"])
    invites = app.clients.stub(rpc.InvitesServiceStub)
    public_url = app.settings.http.public_url.rstrip("/")

    @router.post("")
    async def create_invite(body: NewInvite) -> Json:
        """A new invite. Its link is in this response, and in a mail, and nowhere else."""
        request = pb.CreateInviteRequest(
            email=body.email,
            user_id=body.user_id,
            expires_in=body.expires_in,
            mail=body.mail,
            projects=[
                pb.InviteProject(project_id=one.id, role=_number(OPENAI_PROJECT_ROLES[one.role]))
                for one in body.projects
            ],
        )
        if body.role is not None:
            request.role = _number(OPENAI_ORGANIZATION_ROLES[body.role])
        made = await invites.CreateInvite(request)
        return {**_render(made.invite), "link": f"{public_url}/invites/{made.token}"}

    @router.get("")
    async def list_invites(after: After = "", limit: Limit = 0) -> Json:
        """Invites, newest first."""
        answer = await invites.ListInvites(pb.ListInvitesRequest(after=after, limit=limit))
        return page([_render(one) for one in answer.invites], answer.has_more)

    @router.get("/{invite_id}")
    async def get_invite(invite_id: str) -> Json:
        """Returns one invite."""
        return _render(await invites.GetInvite(pb.GetInviteRequest(invite_id=invite_id)))

    @router.delete("/{invite_id}")
    async def delete_invite(invite_id: str) -> Json:
        """Takes back an invite that nobody has accepted."""
        await invites.DeleteInvite(pb.DeleteInviteRequest(invite_id=invite_id))
        return {"id": invite_id, "object": "organization.invite.deleted", "deleted": True}

    return router


def _number(role: str) -> "users_pb2.Role.ValueType":
    return users_pb2.Role.Value(f"ROLE_{role.upper()}")


def _render(invite: pb.Invite) -> Json:
    accepted, role = bool(invite.accepted_at), openai_role(_name(invite.role))
    expired = invite.expires_at <= now_seconds()
    return {
        "id": invite.id,
        "object": "organization.invite",
        "email": invite.email,
        "role": role if invite.role else "reader",
        "status": "accepted" if accepted else "expired" if expired else "pending",
        "projects": [
            {"id": one.project_id, "role": openai_role(_name(one.role))} for one in invite.projects
        ],
        "created_at": invite.created_at,
        "expires_at": invite.expires_at,
        "accepted_at": invite.accepted_at or None,
        "accepted_by": invite.accepted_by or None,
        "user_id": invite.user_id or None,
        "mailed_at": invite.mailed_at or None,
        "mail_error": invite.mail_error or None,
    }


def _name(role: "users_pb2.Role.ValueType") -> str:
    return enum_name(users_pb2.Role.DESCRIPTOR, role)
