"""Actors and projects of events in OpenAI's shapes."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import grpc

from windlass.api.rbac.v1 import rbac_pb2
from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import MAX_NAMED_MEMBERS
from windlass.core.ids import SESSION_PREFIX
from windlass.core.rpc.auth import Principal
from windlass.gateway.openai.rendering import Json
from windlass.gateway.openai_admin import members

_ACCOUNT = pb.MEMBER_KIND_SERVICE_ACCOUNT
_MISSING = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED)


@dataclass(frozen=True, slots=True)
class KnownActors:
    """Titles of projects by id, and members by theirs."""

    titles: Mapping[str, str]
    members: Mapping[str, pb.Member]

    def actor(self, row: rbac_pb2.AuditEvent) -> Json:
        """Renders whose an event is: a key's and its owner's, or a session's.

        Who was refused a session has none, and no key either.
        """
        member = self.members.get(row.user_id)
        user = {"id": row.user_id, "email": members.email(member, row.user_id) or None}
        if not row.key_id or row.key_id.startswith(SESSION_PREFIX):
            return {"type": "session", "session": {"ip_address": row.address, "user": user}}
        if member is not None and member.kind == _ACCOUNT:
            owner: Json = {"type": "service_account", "service_account": {"id": row.user_id}}
        else:
            owner = {"type": "user", "user": user}
        return {"type": "api_key", "api_key": {"id": row.key_id, **owner}}

    def project(self, row: rbac_pb2.AuditEvent) -> Json | None:
        """The project of an event; None for one of the organization alone."""
        if not row.project_id:
            return None
        return {"id": row.project_id, "name": self.titles.get(row.project_id)}


async def known(
    users: rpc.UsersServiceAsyncStub, caller: Principal, rows: Iterable[rbac_pb2.AuditEvent]
) -> KnownActors:
    """Asks for what the caller may know of the actors and the projects of some events."""
    # Who does something in a project need not be a member of it.
    actors: dict[str, set[str]] = {"": set()}
    for row in rows:
        for scope in {"", row.project_id}:
            actors.setdefault(scope, set()).add(row.user_id)
    titles: dict[str, str] = {}
    found: dict[str, pb.Member] = {}

    async def ask(project_id: str, user_ids: set[str]) -> None:
        if caller.may("projects.read") and project_id:
            project = await users.GetProject(pb.GetProjectRequest(project_id=project_id))
            titles[project_id] = project.title
        if caller.may("members.read"):
            found.update(await members.find(users, project_id, user_ids))

    async def ask_if_there(project_id: str, user_ids: set[str]) -> None:
        try:
            await ask(project_id, user_ids)
        except grpc.aio.AioRpcError as error:
            if error.code() not in _MISSING:
                raise

    async with asyncio.TaskGroup() as group:
        for project_id, user_ids in actors.items():
            group.create_task(ask_if_there(project_id, user_ids))
    return KnownActors(titles, found)


async def ids_of(
    users: rpc.UsersServiceAsyncStub, caller: Principal, emails: Collection[str]
) -> list[str]:
    """Ids by addresses: those that are addresses, and of members whom the caller may see."""
    ids = {one for one in emails if "@" in one}
    if ids and caller.may("members.read"):
        asked = pb.ListMembersRequest(emails=sorted(ids), limit=MAX_NAMED_MEMBERS)
        ids.update(one.user_id for one in (await users.ListMembers(asked)).members)
    return sorted(ids)
