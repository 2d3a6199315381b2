"""/v1/members, and the names of roles."""

from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import TITLE_LENGTH, USER_ID_LENGTH
from windlass.core.app import App
from windlass.core.errors import InvalidArgument
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import enum_name, plain
from windlass.gateway.resource_router import ResourceRouter

ROLES = {
    enum_name(pb.Role.DESCRIPTOR, number): number
    for number in pb.Role.values()
    if number != pb.ROLE_UNSPECIFIED
}

ROLE_NAMES = {number: name for name, number in ROLES.items()}
KINDS = {
    None: pb.MEMBER_KIND_UNSPECIFIED,
    "person": pb.MEMBER_KIND_PERSON,
    "service_account": pb.MEMBER_KIND_SERVICE_ACCOUNT,
}


def role_number(name: str, param: str = "role") -> "pb.Role.ValueType":
    """The role of a name; raises InvalidArgument."""
    if name not in ROLES:
        raise InvalidArgument(f"{param} must be one of {', '.join(ROLES)}.", param=param)
    return ROLES[name]


class PutMember(Body):
    """A membership of the organization, or of a project where one is named."""

    user_id: Annotated[str, Field(min_length=1, max_length=USER_ID_LENGTH)]
    role: str
    project_id: str = ""
    title: Annotated[
        str | None,
        Field(min_length=1, max_length=TITLE_LENGTH, description="Default: the present one."),
    ] = None
    kind: Annotated[
        Literal["person", "service_account"] | None,
        Field(description="Default: the member's present kind, or a person."),
    ] = None


def render_key(key: pb.ApiKey) -> Json:
    """A key, redacted."""
    fields = plain(key, "api_key")
    fields["redacted_value"] = fields.pop("redacted")
    return fields


def _render(member: pb.Member) -> Json:
    return {"id": member.user_id, **plain(member, "member")}


def members_router(app: App) -> ResourceRouter:
    """Members."""
    router = ResourceRouter(prefix="/members", tags=["members"])
    users = app.clients.stub(rpc.UsersServiceStub)

    @router.put("")
    async def put_member(body: PutMember) -> Json:
        """Adds a member or changes the role of one."""
        request = pb.PutMemberRequest(
            user_id=body.user_id,
            role=role_number(body.role),
            project_id=body.project_id,
            title=body.title,
            kind=KINDS[body.kind],
        )
        return _render(await users.PutMember(request))

    @router.get("")
    async def list_members(
        project_id: Annotated[str, Query(max_length=IDENTIFIER_LENGTH)] = "",
        after: After = "",
        limit: Limit = 0,
    ) -> Json:
        """Members of the organization, or of a project."""
        answer = await users.ListMembers(
            pb.ListMembersRequest(project_id=project_id, after=after, limit=limit)
        )
        return page([_render(member) for member in answer.members], answer.has_more)

    @router.delete("/{user_id}")
    async def remove_member(
        user_id: str,
        project_id: str = "",
        successor: Annotated[
            str,
            Query(
                max_length=USER_ID_LENGTH,
                description="Who becomes owner of the projects that the member alone owns.",
            ),
        ] = "",
    ) -> Json:
        """Removes a member; its keys in that scope end, and those that rested on its rights."""
        request = pb.RemoveMemberRequest(
            user_id=user_id, project_id=project_id, successor=successor
        )
        answer = await users.RemoveMember(request)
        return {
            "id": user_id,
            "object": "member",
            "deleted": True,
            "ended_keys": [render_key(key) for key in answer.ended_keys],
            "has_more": answer.has_more,
        }

    @router.get("/{user_id}/affected_keys")
    async def list_affected_keys(
        user_id: str,
        project_id: Annotated[str, Query(max_length=IDENTIFIER_LENGTH)] = "",
        role: Annotated[str, Query(description="Empty: if the member left.")] = "",
        after: After = "",
        limit: Limit = 0,
    ) -> Json:
        """Keys that would end, or could do less, if the member left or had a role."""
        answer = await users.ListAffectedKeys(
            pb.ListAffectedKeysRequest(
                project_id=project_id,
                user_id=user_id,
                role=role_number(role) if role else pb.ROLE_UNSPECIFIED,
                after=after,
                limit=limit,
            )
        )
        keys = [
            {**render_key(one.key), "becomes": ROLE_NAMES.get(one.becomes)} for one in answer.keys
        ]
        return page(keys, answer.has_more)

    return router
