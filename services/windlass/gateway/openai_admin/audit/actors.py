"""Actors and projects of events in OpenAI's shapes."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import grpc

from windlass.api.rbac.v1 import rbac_pb2
from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core.ids import SESSION_PREFIX
from windlass.core.rpc.auth import Principal
from windlass.gateway.openai.rendering import Json
from windlass.gateway.openai_admin import members

_ACCOUNT = pb.MEMBER_KIND_SERVICE_ACCOUNT
_MISSING = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED)


@dataclass(frozen=True, slots=True)
class KnownActors:
    """Titles of projects by id, and the members that are service accounts."""

    titles: Mapping[str, str]
    accounts: frozenset[str]

    def actor(self, row: rbac_pb2.AuditEvent) -> Json:
        """Renders whose an event is: a key's and its owner's, or a session's.

        Who was refused a session has none, and no key either.
        """
        user = {"id": row.user_id, "email": members.email(row.user_id) or None}
        if not row.key_id or row.key_id.startswith(SESSION_PREFIX):
            return {"type": "session", "session": {"ip_address": row.address, "user": user}}
        if row.user_id in self.accounts:
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
    actors: dict[str, set[str]] = {}
    for row in rows:
        actors.setdefault(row.project_id, set()).add(row.user_id)
    titles: dict[str, str] = {}
    accounts = set[str]()

    async def ask(project_id: str, user_ids: set[str]) -> None:
        if caller.may("projects.read") and project_id:
            found = await users.GetProject(pb.GetProjectRequest(project_id=project_id))
            titles[project_id] = found.title
        if caller.may("members.read"):
            for one in (await members.find(users, project_id, user_ids, _ACCOUNT)).values():
                accounts.add(one.user_id)

    async def ask_if_there(project_id: str, user_ids: set[str]) -> None:
        try:
            await ask(project_id, user_ids)
        except grpc.aio.AioRpcError as error:
            if error.code() not in _MISSING:
                raise

    async with asyncio.TaskGroup() as group:
        for project_id, user_ids in actors.items():
            group.create_task(ask_if_there(project_id, user_ids))
    return KnownActors(titles, frozenset(accounts))
