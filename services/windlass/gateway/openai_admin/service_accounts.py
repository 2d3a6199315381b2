"""/v1/organization/projects/{project_id}/service_accounts."""

from typing import Annotated, Literal

import grpc
from pydantic import Field

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import TITLE_LENGTH
from windlass.core.app import App
from windlass.core.ids import new_id
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.openai_admin import members
from windlass.gateway.openai_admin.keys import Lifetime, Scopes, render_account_key
from windlass.gateway.openai_admin.scopes import permissions
from windlass.gateway.openai_admin.unsupported import require_unset
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter
from windlass.policy import OPENAI_PROJECT_ROLES, permissions_of

_ACCOUNT = pb.MEMBER_KIND_SERVICE_ACCOUNT
_MEMBER = members.role_number("member", of_project=True)
_POWER = permissions_of((OPENAI_PROJECT_ROLES["member"],))
_KEY_NAME = "Secret Key"
Name = Annotated[str, Field(min_length=1, max_length=TITLE_LENGTH)]


class NewServiceAccount(Body):
    """A member of a project for programs, and its first key."""

    name: Name
    create_service_account_only: bool | None = None
    expires_in_seconds: Lifetime | None = None


class ServiceAccountSettings(Body):
    """Settings of a service account; those left out stay."""

    name: Name | None = None
    role: Literal["member", "owner"] | None = None


class NewAccountKey(Body):
    """A further key of a service account."""

    name: Name = _KEY_NAME
    expires_in_seconds: Lifetime | None = None
    scopes: Scopes = []


def service_accounts_router(app: App) -> ResourceRouter:
    """Service accounts of a project."""
    router = ResourceRouter(
        prefix="/organization/projects/{project_id}/service_accounts", tags=["administration"]
    )
    users = app.clients.stub(rpc.UsersServiceStub)

    async def make_key(
        project_id: str, account_id: str, name: str, seconds: int | None, scopes: Scopes
    ) -> Json:
        answer = await users.CreateApiKey(
            pb.CreateApiKeyRequest(
                name=name,
                project_id=project_id,
                user_id=account_id,
                role=_MEMBER,
                expires_in=seconds or 0,
                scopes=permissions(scopes, _POWER),
            )
        )
        return render_account_key(answer.key, answer.secret)

    @router.post("")
    async def create_service_account(project_id: str, body: NewServiceAccount) -> Json:
        """A new service account with a key, whose `value` is in this answer and nowhere else."""
        # There is no member without a role.
        require_unset(create_service_account_only=body.create_service_account_only or None)
        member = await users.PutMember(
            pb.PutMemberRequest(
                project_id=project_id,
                user_id=new_id("svc_"),
                role=_MEMBER,
                kind=_ACCOUNT,
                title=body.name,
            )
        )
        try:
            key = await make_key(project_id, member.user_id, _KEY_NAME, body.expires_in_seconds, [])
        except grpc.aio.AioRpcError:
            request = pb.RemoveMemberRequest(project_id=project_id, user_id=member.user_id)
            await users.RemoveMember(request)
            raise
        return {**members.render_service_account(member), "api_key": key}

    @router.get("")
    async def list_service_accounts(project_id: str, after: After = "", limit: Limit = 0) -> Json:
        """Service accounts of a project, newest first."""
        answer = await users.ListMembers(
            pb.ListMembersRequest(project_id=project_id, kind=_ACCOUNT, after=after, limit=limit)
        )
        shown = [members.render_service_account(one) for one in answer.members]
        return page(shown, answer.has_more)

    @router.get("/{service_account_id}")
    async def get_service_account(project_id: str, service_account_id: str) -> Json:
        """Returns one service account of a project."""
        return members.render_service_account(
            await members.get(users, project_id, service_account_id, _ACCOUNT)
        )

    @router.post("/{service_account_id}")
    async def update_service_account(
        project_id: str, service_account_id: str, body: ServiceAccountSettings
    ) -> Json:
        """Changes the name or the role of a service account."""
        member = await members.get(users, project_id, service_account_id, _ACCOUNT)
        request = pb.PutMemberRequest(
            project_id=project_id,
            user_id=service_account_id,
            role=member.role,
            kind=_ACCOUNT,
            title=body.name,
        )
        if body.role is not None:
            request.role = members.role_number(body.role, of_project=True)
        return members.render_service_account(await users.PutMember(request))

    @router.delete("/{service_account_id}")
    async def delete_service_account(project_id: str, service_account_id: str) -> Json:
        """Removes a service account; its keys end."""
        await members.get(users, project_id, service_account_id, _ACCOUNT)
        await users.RemoveMember(
            pb.RemoveMemberRequest(project_id=project_id, user_id=service_account_id)
        )
        kind = "organization.project.service_account.deleted"
        return {"id": service_account_id, "object": kind, "deleted": True}

    @router.post("/{service_account_id}/api_keys")
    async def create_service_account_key(
        project_id: str, service_account_id: str, body: NewAccountKey
    ) -> Json:
        """A further key; its `value` is in this answer and nowhere else."""
        await members.get(users, project_id, service_account_id, _ACCOUNT)
        seconds, scopes = body.expires_in_seconds, body.scopes
        return await make_key(project_id, service_account_id, body.name, seconds, scopes)

    return router
