"""/v1/exports: copies of what an organization has, and of what it knows of a person."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from pydantic import Field

from windlass.api.users.v1 import exports_pb2 as pb
from windlass.api.users.v1 import exports_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.exporting.archive import END, header, padding
from windlass.core.objects import ObjectStore
from windlass.gateway.openai.files import byte_range
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter

KIND = "export"


class NewExport(Body):
    """A new export."""

    personal: Annotated[bool, Field(description="What is known of the caller, and no more.")] = (
        False
    )


def exports_router(app: App) -> ResourceRouter:
    """The routes of exports."""
    router = ResourceRouter(prefix="/exports", tags=["organizations and projects"])
    exports = app.clients.stub(rpc.ExportsServiceStub)

    @router.post("")
    async def create_export(body: NewExport) -> Json:
        """Begins an export of the organization (owners), or of what is known of the caller."""
        if body.personal:
            return plain(await exports.CreatePersonalExport(pb.CreatePersonalExportRequest()), KIND)
        return plain(await exports.CreateExport(pb.CreateExportRequest()), KIND)

    @router.get("")
    async def list_exports(after: After = "", limit: Limit = 0) -> Json:
        """Exports that the caller may have, newest first."""
        answer = await exports.ListExports(pb.ListExportsRequest(after=after, limit=limit))
        return page([plain(one, KIND) for one in answer.exports], answer.has_more)

    @router.get("/{export_id}")
    async def get_export(export_id: str) -> Json:
        """Returns one export: how far each service is, and until when it is kept."""
        return plain(await exports.GetExport(pb.GetExportRequest(export_id=export_id)), KIND)

    @router.get("/{export_id}/content", response_class=StreamingResponse)
    async def export_content(export_id: str, request: Request) -> Response:
        """The archive, a tar; a byte range where asked for."""
        found = await exports.OpenExport(pb.OpenExportRequest(export_id=export_id))
        start, end = byte_range(request.headers.get("range"), found.bytes)
        headers = {
            "accept-ranges": "bytes",
            "content-length": str(end - start),
            "content-disposition": f'attachment; filename="{found.id}.tar"',
            "etag": f'"{found.id}"',
        }
        status = 200
        if "range" in request.headers and (start, end) != (0, found.bytes):
            status = 206
            headers["content-range"] = f"bytes {start}-{end - 1}/{found.bytes}"
        archive = Archive(app.objects, exports, found)
        return StreamingResponse(
            archive.read(start, end), status, headers, media_type="application/octet-stream"
        )

    return router


class Archive:
    """An export as one stream, of which no more than a chunk is in memory."""

    def __init__(
        self, objects: ObjectStore, exports: rpc.ExportsServiceAsyncStub, export: pb.Export
    ):
        self._objects = objects
        self._exports = exports
        self._export = export

    async def read(self, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`."""
        at = 0
        async for size, content in self._pieces():
            first, last = max(start - at, 0), min(end - at, size)
            if first < last:
                if isinstance(content, bytes):
                    yield content[first:last]
                else:
                    async for chunk in self._objects.get(content, start=first, end=last):
                        yield chunk
            at += size
            if at >= end:
                return

    async def _pieces(self) -> AsyncIterator[tuple[int, bytes | str]]:
        """The size of each piece, with its bytes or the key of the object that has them."""
        async for part in self._parts():
            head = header(part.name, part.bytes, self._export.asked_at)
            yield len(head), head
            yield part.bytes, part.object_key
            filler = padding(part.bytes)
            yield len(filler), filler
        yield len(END), END

    async def _parts(self) -> AsyncIterator[pb.ExportPart]:
        after, more = "", True
        while more:
            request = pb.ListExportPartsRequest(export_id=self._export.id, after=after)
            answer = await self._exports.ListExportParts(request)
            for part in answer.parts:
                yield part
            more = answer.has_more
            after = answer.parts[-1].name if more else ""
