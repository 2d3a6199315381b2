"""Members as callers add, see and remove them."""

from collections.abc import Sequence

from windlass.api.users.v1 import users_pb2 as pb
from windlass.bounds import MAX_NAMED_MEMBERS
from windlass.core.clock import now_seconds
from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.policy import MEMBERS, PROJECT_OWNER
from windlass.users.contacts import Contact
from windlass.users.domain import (
    KIND_NAMES,
    SERVICE_ACCOUNT,
    ApiKey,
    Member,
    require_grant,
    require_kind,
    require_scope,
    role_name,
    valid_title,
    valid_user,
)
from windlass.users.membership.store import MemberStore
from windlass.users.scope import project_in_scope, sees_organization
from windlass.users.store import TenantStore


class Roster:
    """Adds, lists and removes members on behalf of a principal."""

    def __init__(self, tenants: TenantStore, members: MemberStore):
        self._tenants = tenants
        self._members = members

    async def put(
        self, principal: Principal, request: pb.PutMemberRequest
    ) -> tuple[Member, Contact]:
        """Adds a member, or changes the role or the title of one."""
        role = role_name(request.role)
        project_id = await self.scope(principal, request.project_id)
        require_scope(role, project_id)
        require_grant(principal, role)
        user_id = await self._named(principal, request)
        await self._require_power(principal, project_id, user_id)
        kind = await self._kind(principal, request, project_id, user_id)
        require_kind(kind, role)
        title = valid_title(request.title) if request.HasField("title") else None
        member = Member(principal.organization_id, project_id, user_id, role, now_seconds(), kind)
        put = await self._members.put(member, title=title, by_key=principal.key_id)
        return (await self._known_by(principal, [put]))[0]

    async def list(
        self, principal: Principal, request: pb.ListMembersRequest, *, limit: int
    ) -> Sequence[tuple[Member, Contact]]:
        """Members of the organization, or of one project, of a kind, by their ids or addresses."""
        for name in ("user_ids", "emails"):
            if len(getattr(request, name)) > MAX_NAMED_MEMBERS:
                raise InvalidArgument(
                    f"{name} names at most {MAX_NAMED_MEMBERS} members.", param=name
                )
        found = await self._members.list(
            principal.organization_id,
            await self.seen_scope(principal, request.project_id),
            kind=KIND_NAMES.get(request.kind, ""),
            user_ids=request.user_ids,
            emails=request.emails,
            after=request.after,
            limit=limit,
        )
        return await self._known_by(principal, found)

    async def remove(self, principal: Principal, request: pb.RemoveMemberRequest) -> Sequence[str]:
        """Removes a member; returns the ids of the keys that end."""
        user_id = valid_user(request.user_id)
        project_id = await self.scope(principal, request.project_id)
        await self._require_power(principal, project_id, user_id)
        if request.successor:
            require_grant(principal, PROJECT_OWNER)
        return await self._members.remove(
            principal.organization_id,
            project_id,
            user_id,
            by_key=principal.key_id,
            successor=request.successor,
        )

    async def affected_keys(
        self, principal: Principal, request: pb.ListAffectedKeysRequest, *, limit: int
    ) -> Sequence[tuple[ApiKey, str | None]]:
        """The keys that a removal or a role of a member would take rights from."""
        if not principal.may(MEMBERS):
            raise PermissionDenied("Only owners see which keys rest on a member.")
        user_id = valid_user(request.user_id)
        project_id = await self.scope(principal, request.project_id)
        await self._require_power(principal, project_id, user_id)
        role = role_name(request.role) if request.role else ""
        if role:
            require_scope(role, project_id)
        member = Member(principal.organization_id, project_id, user_id, role, 0)
        return await self._members.affected_keys(member, after=request.after, limit=limit)

    async def scope(self, principal: Principal, project_id: str) -> str:
        """The project that a call may administer, empty for the organization; raises NotFound."""
        return await self._known(principal, project_in_scope(principal, project_id))

    async def seen_scope(self, principal: Principal, project_id: str) -> str:
        """The project that a call may see, empty for the organization; raises NotFound."""
        if not sees_organization(principal):
            project_id = project_in_scope(principal, project_id)
        return await self._known(principal, project_id)

    async def _named(self, principal: Principal, request: pb.PutMemberRequest) -> str:
        """The id of whom a request names, by it or by an address; raises InvalidArgument."""
        if not request.email:
            return valid_user(request.user_id)
        if request.user_id:
            raise InvalidArgument("Give either user_id or email.", param="email")
        known = await self._members.addressed(principal.organization_id, request.email)
        return known or valid_user(request.email)

    async def _known_by(
        self, principal: Principal, found: Sequence[Member]
    ) -> Sequence[tuple[Member, Contact]]:
        """Members with what their organization knows of them."""
        ids = [one.user_id for one in found]
        known = await self._members.contacts(principal.organization_id, ids)
        return [(one, known.get(one.user_id, Contact())) for one in found]

    async def _known(self, principal: Principal, project_id: str) -> str:
        if project_id:
            await self._tenants.project(principal.organization_id, project_id)
        return project_id

    async def _kind(
        self, principal: Principal, request: pb.PutMemberRequest, project_id: str, user_id: str
    ) -> str:
        """The kind of the member: as asked, as in the organization already, or a person."""
        if request.kind:
            return KIND_NAMES[request.kind]
        known = {
            await self._members.kind_of(principal.organization_id, scope, user_id)
            for scope in dict.fromkeys((project_id, ""))
        }
        return SERVICE_ACCOUNT if SERVICE_ACCOUNT in known else "person"

    async def _require_power(self, principal: Principal, project_id: str, user_id: str) -> None:
        """Raises PermissionDenied for a person whose role is above the caller's."""
        held = await self._members.roles_of(principal.organization_id, project_id, user_id)
        for role in sorted(held):
            require_grant(principal, role)
