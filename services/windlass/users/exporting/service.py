"""The servicer of exports."""

from typing import Any

from windlass.api.users.v1 import exports_pb2 as pb
from windlass.api.users.v1 import exports_pb2_grpc as rpc
from windlass.core.db import Database
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.exporting.tables import TOPIC
from windlass.core.rpc.auth import current
from windlass.users.exporting.access import ExportAccess
from windlass.users.exporting.domain import TenantExport
from windlass.users.exporting.store import ExportStore, parts_after

MOST_PARTS = 200


class ExportsServicer(rpc.ExportsServiceServicer):
    """ExportsService."""

    def __init__(self, database: Database, store: ExportStore, wake: Wake):
        self._database = database
        self._store = store
        self._access = ExportAccess(database)
        self._wake = wake

    async def CreateExport(self, request: pb.CreateExportRequest, context: Any) -> pb.Export:
        """Begins an export of the organization."""
        return await self._create(await self._access.owner(current()))

    async def CreatePersonalExport(
        self, request: pb.CreatePersonalExportRequest, context: Any
    ) -> pb.Export:
        """Begins an export of what is known of the caller."""
        return await self._create(await self._access.person(current()))

    async def ListExports(
        self, request: pb.ListExportsRequest, context: Any
    ) -> pb.ListExportsResponse:
        """Exports, newest first, without their steps."""
        principal, size = current(), page_size(request.limit)
        subjects = await self._access.subjects(principal)
        rows = await self._store.list(
            principal.organization_id, subjects, after=request.after, limit=size + 1
        )
        page, more = cut(rows, size)
        return pb.ListExportsResponse(exports=map(_message, page), has_more=more)

    async def GetExport(self, request: pb.GetExportRequest, context: Any) -> pb.Export:
        """Returns one export with its steps."""
        principal = current()
        subjects = await self._access.subjects(principal)
        return _message(
            await self._store.get(principal.organization_id, subjects, request.export_id)
        )

    async def OpenExport(self, request: pb.OpenExportRequest, context: Any) -> pb.Export:
        """Returns one export that can be downloaded."""
        return _message(await self._ready(request.export_id))

    async def ListExportParts(
        self, request: pb.ListExportPartsRequest, context: Any
    ) -> pb.ListExportPartsResponse:
        """The parts of one that can be downloaded."""
        size = page_size(request.limit, default=MOST_PARTS, max_limit=MOST_PARTS)
        found = await self._ready(request.export_id)
        rows = await parts_after(self._database, found.id, request.after, size + 1)
        page, more = cut(rows, size)
        parts = [
            pb.ExportPart(name=one.name, object_key=one.object_key, bytes=one.bytes) for one in page
        ]
        return pb.ListExportPartsResponse(parts=parts, has_more=more)

    async def _create(self, subject: str) -> pb.Export:
        principal = current()
        made = await self._store.create(principal.organization_id, subject, by=principal.user_id)
        self._wake.touch(TOPIC)
        return _message(made)

    async def _ready(self, export_id: str) -> TenantExport:
        principal = current()
        subjects = await self._access.subjects(principal)
        return await self._store.ready(principal.organization_id, subjects, export_id)


def _message(export: TenantExport) -> pb.Export:
    return pb.Export(
        id=export.id,
        organization_id=export.organization_id,
        user_id=export.user_id,
        state=export.state,
        asked_by=export.asked_by,
        asked_at=export.asked_at,
        finished_at=export.finished_at,
        expires_at=export.expires_at,
        bytes=export.bytes,
        steps=[
            pb.ExportStep(
                service=step.service,
                state=step.state,
                rows=step.rows,
                objects=step.objects,
                bytes=step.bytes,
                message=step.message,
            )
            for step in export.steps
        ],
    )
