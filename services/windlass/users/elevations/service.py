"""The servicer of roles that members ask for."""

from typing import Any

from windlass.api.users.v1 import elevations_pb2 as pb
from windlass.api.users.v1 import elevations_pb2_grpc as rpc
from windlass.core.clock import now_seconds
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument
from windlass.core.ids import new_id
from windlass.core.rpc import audited
from windlass.core.rpc.auth import Principal, current
from windlass.users.domain import KEYS_TOPIC
from windlass.users.elevations import decisions
from windlass.users.elevations.domain import (
    PENDING,
    REQUEST_SECONDS,
    Elevation,
    unknown_elevation,
    valid_reason,
)
from windlass.users.elevations.store import Decision, ElevationStore
from windlass.users.roles import messages
from windlass.users.roles.ends import ROLES_TOPIC
from windlass.users.roster import Roster
from windlass.users.scope import sees_organization

_STATES = {
    number: name.removeprefix("ELEVATION_STATE_").lower()
    for name, number in pb.ElevationState.items()
    if number != pb.ELEVATION_STATE_UNSPECIFIED
}
_NUMBERS = {name: number for number, name in _STATES.items()}


class ElevationsServicer(rpc.ElevationsServiceServicer):
    """ElevationsService."""

    def __init__(self, elevations: ElevationStore, roster: Roster, wake: Wake):
        self._elevations = elevations
        self._roster = roster
        self._wake = wake

    async def RequestElevation(
        self, request: pb.RequestElevationRequest, context: Any
    ) -> pb.Elevation:
        """Asks for a role for the caller."""
        principal, now = current(), now_seconds()
        asked = Elevation(
            id=new_id("elev_"),
            organization_id=principal.organization_id,
            project_id=await self._visible(principal, request.project_id),
            role_id=request.role_id,
            user_id=principal.user_id,
            reason=valid_reason(request.reason),
            seconds=request.seconds,
            state=PENDING,
            approvals=0,
            created_at=now,
            expires_at=now + REQUEST_SECONDS,
        )
        stored = await self._elevations.request(asked)
        audited.also([stored.id])
        return _message(stored)

    async def GetElevation(self, request: pb.GetElevationRequest, context: Any) -> pb.Elevation:
        """Returns one request that the caller may see."""
        return _message(await self._seen(current(), request.elevation_id))

    async def ListElevations(
        self, request: pb.ListElevationsRequest, context: Any
    ) -> pb.ListElevationsResponse:
        """Requests of a project or of the organization: the caller's own, or all."""
        principal, size = current(), page_size(request.limit)
        if request.state and request.state not in _STATES:
            raise InvalidArgument(f"state must be one of {', '.join(_NUMBERS)}.", param="state")
        rows = await self._elevations.list(
            principal.organization_id,
            await self._visible(principal, request.project_id),
            user_id="" if _sees_all(principal, request.project_id) else principal.user_id,
            state=_STATES.get(request.state, ""),
            after=request.after,
            limit=size + 1,
        )
        page, more = cut(rows, size)
        return pb.ListElevationsResponse(elevations=map(_message, page), has_more=more)

    async def ListRequestableRoles(
        self, request: pb.ListRequestableRolesRequest, context: Any
    ) -> pb.ListRequestableRolesResponse:
        """Roles that the caller may ask for in a project or in all of the organization."""
        principal, size = current(), page_size(request.limit)
        rows = await self._elevations.requestable(
            principal.organization_id,
            await self._visible(principal, request.project_id),
            principal.user_id,
            after=request.after,
            limit=size + 1,
        )
        page, more = cut(rows, size)
        return pb.ListRequestableRolesResponse(roles=map(messages.role, page), has_more=more)

    async def ApproveElevation(
        self, request: pb.DecideElevationRequest, context: Any
    ) -> pb.Elevation:
        """Approves what another member asks for."""
        comment = valid_reason(request.comment, "comment", required=False)
        approve = decisions.approval(current(), comment)
        return await self._decide(request.elevation_id, approve)

    async def DenyElevation(self, request: pb.DecideElevationRequest, context: Any) -> pb.Elevation:
        """Denies what another member asks for."""
        comment = valid_reason(request.comment, "comment", required=False)
        return await self._decide(request.elevation_id, decisions.denial(current(), comment))

    async def WithdrawElevation(
        self, request: pb.WithdrawElevationRequest, context: Any
    ) -> pb.Elevation:
        """Withdraws what the caller asked for."""
        principal = current()
        await self._seen(principal, request.elevation_id)
        withdrawn = await self._elevations.withdraw(
            principal.organization_id, principal.user_id, request.elevation_id
        )
        return _message(withdrawn)

    async def EndElevation(self, request: pb.EndElevationRequest, context: Any) -> pb.Elevation:
        """Ends a role that was given on request."""
        return await self._decide(request.elevation_id, decisions.end(current()))

    async def _decide(self, elevation_id: str, decision: Decision) -> pb.Elevation:
        principal = current()
        seen = await self._seen(principal, elevation_id)
        decided = await self._elevations.decide(principal, elevation_id, decision)
        self._wake.touch(KEYS_TOPIC)
        self._wake.touch(ROLES_TOPIC)
        audited.also([seen.user_id])
        return _message(decided)

    async def _seen(self, principal: Principal, elevation_id: str) -> Elevation:
        """A request that the caller may see; raises NotFound."""
        one = await self._elevations.get(principal.organization_id, elevation_id)
        # A key of another project of theirs is none of this one.
        here = one.project_id in ("", principal.project_id) or sees_organization(principal)
        is_own = one.user_id == principal.user_id and here
        if not is_own and not _sees_all(principal, one.project_id):
            raise unknown_elevation(elevation_id)
        return one

    async def _visible(self, principal: Principal, project_id: str) -> str:
        """A project that the caller may see; the organization is all of its members'."""
        return await self._roster.seen_scope(principal, project_id) if project_id else ""


def _sees_all(principal: Principal, project_id: str) -> bool:
    """Returns True if the caller sees what others ask for there."""
    in_scope = sees_organization(principal) or (
        bool(project_id) and project_id == principal.project_id
    )
    return in_scope and principal.may("members.read")


def _message(one: Elevation) -> pb.Elevation:
    return pb.Elevation(
        id=one.id,
        organization_id=one.organization_id,
        project_id=one.project_id,
        role_id=one.role_id,
        user_id=one.user_id,
        reason=one.reason,
        seconds=one.seconds,
        state=_NUMBERS[one.state_at(now_seconds())],
        approvals=one.approvals,
        approved_by=one.approved_by,
        denied_by=one.denied_by,
        comment=one.comment,
        created_at=one.created_at,
        expires_at=one.expires_at,
        ends_at=one.ends_at,
        closed_at=one.closed_at,
    )
