"""The servicer of invites."""

import secrets
from typing import Any

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.api.users.v1 import sign_in_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2
from windlass.bounds import MAX_INVITE_PROJECTS, MAX_INVITE_SECONDS
from windlass.core.clock import now_seconds
from windlass.core.db.paging import cut, page_size
from windlass.core.errors import FailedPrecondition, InvalidArgument, PermissionDenied
from windlass.core.ids import new_id
from windlass.core.rpc import audited, auth
from windlass.core.rpc.auth import Principal, current
from windlass.users.domain import (
    ROLE_NUMBERS,
    require_grant,
    require_scope,
    role_name,
    valid_user,
)
from windlass.users.membership.store import MemberStore
from windlass.users.roster import Roster
from windlass.users.scope import owns_organization
from windlass.users.sign_in.domain import Invite, InviteMail, valid_email
from windlass.users.sign_in.invites.store import InviteStore

DEFAULT_SECONDS = 7 * 86_400


class InvitesServicer(rpc.InvitesServiceServicer):
    """InvitesService."""

    def __init__(
        self, invites: InviteStore, roster: Roster, members: MemberStore, *, mailed_at: str
    ):
        """`mailed_at` is the URL that links in mails begin with; empty: nothing is mailed."""
        self._invites = invites
        self._roster = roster
        self._members = members
        self._mailed_at = mailed_at

    async def CreateInvite(
        self, request: pb.CreateInviteRequest, context: Any
    ) -> pb.CreateInviteResponse:
        """Makes an invite, within the caller's own power, and its link's secret."""
        principal = current()
        role = role_name(request.role) if request.role else ""
        if role:
            if not owns_organization(principal):
                raise PermissionDenied("Only an owner of the organization invites to it.")
            require_scope(role, "")
            require_grant(principal, role)
        projects = await self._projects(principal, request)
        if request.user_id:
            await self._require_power_over(principal, valid_user(request.user_id))
        elif not role and not projects:
            raise InvalidArgument("Name a role, projects or a member.", param="role")
        seconds = request.expires_in or DEFAULT_SECONDS
        if not 0 < seconds <= MAX_INVITE_SECONDS:
            raise InvalidArgument(
                f"expires_in must be between 1 and {MAX_INVITE_SECONDS} seconds.",
                param="expires_in",
            )
        now, token = now_seconds(), secrets.token_urlsafe(32)
        invite = Invite(
            id=new_id("invite_"),
            organization_id=principal.organization_id,
            email=valid_email(request.email) if request.email else "",
            role=role,
            projects=projects,
            user_id=request.user_id,
            invited_by=principal.user_id,
            created_at=now,
            expires_at=now + seconds,
        )
        link = f"{self._mailed_at}/invites/{token}" if self._is_mailed(request) else ""
        await self._invites.create(
            invite, auth.digest(token), mailed_link=link, must_mail=request.mail
        )
        audited.change(None, invite, resource=invite.id)
        return pb.CreateInviteResponse(invite=_message(invite, InviteMail()), token=token)

    async def GetInvite(self, request: pb.GetInviteRequest, context: Any) -> pb.Invite:
        """Returns one invite."""
        _require_owner(current())
        return _message(*await self._invites.get(current().organization_id, request.invite_id))

    async def ListInvites(
        self, request: pb.ListInvitesRequest, context: Any
    ) -> pb.ListInvitesResponse:
        """Invites of the organization, newest first."""
        _require_owner(current())
        size = page_size(request.limit)
        rows = await self._invites.list(
            current().organization_id, after=request.after, limit=size + 1
        )
        page, more = cut(rows, size)
        invites = [_message(*one) for one in page]
        return pb.ListInvitesResponse(invites=invites, has_more=more)

    async def DeleteInvite(
        self, request: pb.DeleteInviteRequest, context: Any
    ) -> pb.DeleteInviteResponse:
        """Takes an invite back."""
        _require_owner(current())
        await self._invites.delete(current().organization_id, request.invite_id)
        return pb.DeleteInviteResponse()

    def _is_mailed(self, request: pb.CreateInviteRequest) -> bool:
        if not request.mail:
            return not request.HasField("mail") and bool(request.email and self._mailed_at)
        if not request.email:
            raise InvalidArgument("email must be set where the link is mailed.", param="email")
        if not self._mailed_at:
            raise FailedPrecondition(
                "This installation sends no mail. Send the link yourself.",
                reason="mail_not_set_up",
                param="mail",
            )
        return True

    async def _projects(
        self, principal: Principal, request: pb.CreateInviteRequest
    ) -> dict[str, str]:
        if len(request.projects) > MAX_INVITE_PROJECTS:
            raise InvalidArgument(
                f"projects may have {MAX_INVITE_PROJECTS} entries.", param="projects"
            )
        found: dict[str, str] = {}
        for one in request.projects:
            role = role_name(one.role)
            require_scope(role, one.project_id)
            require_grant(principal, role)
            found[await self._roster.scope(principal, one.project_id)] = role
        return found

    async def _require_power_over(self, principal: Principal, user_id: str) -> None:
        """Raises for who is no member, or one above the caller.

        Whoever opens the link acts as them from then on.
        """
        if not owns_organization(principal):
            raise PermissionDenied("Only an owner of the organization has members sign in.")
        here = await self._members.roles_of(principal.organization_id, "", user_id)
        if not here:
            raise InvalidArgument(f"{user_id} is not a member.", param="user_id")
        anywhere = await self._members.held(principal.organization_id, "", user_id)
        for role in sorted(here | anywhere):
            require_grant(principal, role)


def _require_owner(principal: Principal) -> None:
    # An invite tells of the whole organization.
    if not owns_organization(principal):
        raise PermissionDenied("Only an owner of the organization sees its invites.")


def _message(invite: Invite, mail: InviteMail) -> pb.Invite:
    return pb.Invite(
        id=invite.id,
        organization_id=invite.organization_id,
        email=invite.email,
        role=ROLE_NUMBERS.get(invite.role, users_pb2.ROLE_UNSPECIFIED),
        projects=[
            pb.InviteProject(project_id=project, role=ROLE_NUMBERS[role])
            for project, role in invite.projects.items()
        ],
        user_id=invite.user_id,
        invited_by=invite.invited_by,
        created_at=invite.created_at,
        expires_at=invite.expires_at,
        accepted_at=invite.accepted_at,
        accepted_by=invite.accepted_by,
        mailed_at=mail.sent_at,
        mail_error=mail.error,
    )
