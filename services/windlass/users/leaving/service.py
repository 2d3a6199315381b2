"""The servicer of erasures."""

import json
from typing import Any

from windlass.api.users.v1 import erasures_pb2 as pb
from windlass.api.users.v1 import erasures_pb2_grpc as rpc
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument, NotFound, PermissionDenied
from windlass.core.leaving.eraser import TOPIC
from windlass.core.leaving.tables import SCHEDULED
from windlass.core.rpc.auth import Principal, current
from windlass.policy import ORGANIZATION_OWNER, PLATFORM, permissions_of
from windlass.users.domain import KEYS_TOPIC, PROJECTS_TOPIC
from windlass.users.leaving.domain import Erasure, require_title
from windlass.users.leaving.report import ReportSigner
from windlass.users.leaving.store import ErasureStore
from windlass.users.scope import owns_organization
from windlass.users.store import TenantStore


class ErasuresServicer(rpc.ErasuresServiceServicer):
    """ErasuresService."""

    def __init__(
        self, tenants: TenantStore, erasures: ErasureStore, signer: ReportSigner, wake: Wake
    ):
        self._tenants = tenants
        self._erasures = erasures
        self._public_key = json.dumps(signer.key.jwk)
        self._wake = wake

    async def DeleteProject(self, request: pb.DeleteProjectRequest, context: Any) -> pb.Erasure:
        """Ends a project and schedules its erasure."""
        principal = current()
        project = await self._tenants.project(principal.organization_id, request.project_id)
        if project.is_default:
            raise InvalidArgument("The default project cannot be deleted.", param="project_id")
        require_title(project.title, request.title)
        made = await self._erasures.delete_project(
            principal.organization_id, project.id, by=principal.user_id
        )
        return self._told(made)

    async def UndeleteProject(self, request: pb.UndeleteProjectRequest, context: Any) -> pb.Erasure:
        """Makes a project live again."""
        organization_id = current().organization_id
        project = await self._tenants.project(organization_id, request.project_id)
        return self._told(await self._erasures.undo(organization_id, project.id))

    async def DeleteOrganization(
        self, request: pb.DeleteOrganizationRequest, context: Any
    ) -> pb.Erasure:
        """Ends a tenant and schedules its erasure."""
        principal, wanted = current(), request.organization_id
        own = wanted == principal.organization_id
        administers = principal.may(PLATFORM)
        found = await self._tenants.organization(wanted if own or administers else "")
        if own and not (administers or ORGANIZATION_OWNER in principal.roles):
            raise PermissionDenied("Only an owner of the organization deletes it.")
        if (
            own
            and not administers
            and permissions_of((ORGANIZATION_OWNER,)) - principal.permissions
        ):
            raise PermissionDenied("A key with scopes does not delete the organization.")
        require_title(found.title, request.title)
        made = await self._erasures.delete_organization(found.id, by=principal.user_id)
        return self._told(made)

    async def UndeleteOrganization(
        self, request: pb.UndeleteOrganizationRequest, context: Any
    ) -> pb.Erasure:
        """Makes an organization live again."""
        return self._told(await self._erasures.undo(request.organization_id, ""))

    async def HoldOrganization(
        self, request: pb.HoldOrganizationRequest, context: Any
    ) -> pb.HoldOrganizationResponse:
        """Puts an organization under a legal hold."""
        await self._hold(request.organization_id, held=True)
        return pb.HoldOrganizationResponse()

    async def ReleaseOrganization(
        self, request: pb.ReleaseOrganizationRequest, context: Any
    ) -> pb.ReleaseOrganizationResponse:
        """Ends the hold."""
        await self._hold(request.organization_id, held=False)
        return pb.ReleaseOrganizationResponse()

    async def ListErasures(
        self, request: pb.ListErasuresRequest, context: Any
    ) -> pb.ListErasuresResponse:
        """Erasures, newest first, without their steps."""
        size = page_size(request.limit)
        rows = await self._erasures.list(_seen(current()), after=request.after, limit=size + 1)
        page, more = cut(rows, size)
        return pb.ListErasuresResponse(erasures=map(_message, page), has_more=more)

    async def GetErasure(self, request: pb.GetErasureRequest, context: Any) -> pb.Erasure:
        """Returns one erasure with its report."""
        found = await self._erasures.get(_seen(current()), request.erasure_id)
        message = _message(found)
        if found.report:
            message.report, message.public_key = found.report, self._public_key
        return message

    async def _hold(self, organization_id: str, *, held: bool) -> None:
        if not await self._erasures.hold(organization_id, held=held):
            raise NotFound(f"No organization {organization_id!r}.", param="organization_id")
        self._wake.touch(TOPIC)

    def _told(self, erasure: Erasure) -> pb.Erasure:
        for topic in (KEYS_TOPIC, PROJECTS_TOPIC, TOPIC):
            self._wake.touch(topic)
        return _message(erasure)


def _seen(principal: Principal) -> str | None:
    """The organization whose erasures the caller sees; None: all."""
    if principal.may(PLATFORM):
        return None
    if not owns_organization(principal):
        raise PermissionDenied("Only an owner of the organization sees what is erased.")
    return principal.organization_id


def _message(erasure: Erasure) -> pb.Erasure:
    is_held = erasure.held and erasure.state == SCHEDULED
    return pb.Erasure(
        id=erasure.id,
        organization_id=erasure.organization_id,
        project_id=erasure.project_id,
        state="held" if is_held else erasure.state,
        asked_by=erasure.asked_by,
        asked_at=erasure.asked_at,
        erase_at=erasure.erase_at,
        finished_at=erasure.finished_at,
        steps=[
            pb.ErasureStep(
                service=step.service,
                state=step.state,
                rows=step.rows,
                objects=step.objects,
                bytes=step.bytes,
                message=step.message,
            )
            for step in erasure.steps
        ],
    )
