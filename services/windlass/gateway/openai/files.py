"""/v1/files, but for the upload."""

import re
from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import Response, StreamingResponse

from windlass.api.files.v1 import files_pb2 as pb
from windlass.api.files.v1 import files_pb2_grpc as rpc
from windlass.core.app import App
from windlass.gateway.errors import HttpError
from windlass.gateway.openai.rendering import Json, page, render_file
from windlass.gateway.parameters import After, LongestLimit
from windlass.gateway.resource_router import ResourceRouter

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def files_router(app: App) -> ResourceRouter:
    """Files: list, retrieve, content, delete."""
    router = ResourceRouter(prefix="/files", tags=["files"])
    files = app.clients.stub(rpc.FilesServiceStub)

    @router.get("")
    async def list_files(
        purpose: str = "",
        after: After = "",
        limit: LongestLimit = 0,
        order: Annotated[str, Query(pattern="^(asc|desc)$")] = "desc",
    ) -> Json:
        """The project's files."""
        answer = await files.ListFiles(
            pb.ListFilesRequest(purpose=purpose, after=after, limit=limit, order=order)
        )
        return page([render_file(file) for file in answer.files], answer.has_more)

    @router.get("/{file_id}")
    async def retrieve_file(file_id: str) -> Json:
        """Returns one file."""
        return render_file(await files.GetFile(pb.GetFileRequest(file_id=file_id)))

    @router.delete("/{file_id}")
    async def delete_file(file_id: str) -> Json:
        """Deletes a file that no live job uses."""
        await files.DeleteFile(pb.DeleteFileRequest(file_id=file_id))
        return {"id": file_id, "object": "file", "deleted": True}

    @router.get("/{file_id}/content", response_class=StreamingResponse)
    async def file_content(file_id: str, request: Request) -> Response:
        """The content; a byte range where asked for."""
        found = await files.GetFileObject(pb.GetFileObjectRequest(file_id=file_id))
        start, end = byte_range(request.headers.get("range"), found.bytes)
        headers = {
            "accept-ranges": "bytes",
            "content-length": str(end - start),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(found.filename)}",
        }
        status = 200
        if "range" in request.headers and (start, end) != (0, found.bytes):
            status = 206
            headers["content-range"] = f"bytes {start}-{end - 1}/{found.bytes}"
        chunks = app.objects.get(found.object_key, start=start, end=end)
        # The first step finds out whether the object is there, while a status can still say so.
        first = await anext(chunks, b"")
        return StreamingResponse(
            _joined(first, chunks), status, headers, media_type="application/octet-stream"
        )

    return router


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


def byte_range(header: str | None, size: int) -> tuple[int, int]:
    """Start and end of the one range that a header asks for, else of the whole.

    Raises HttpError 416 for a range outside of the content.
    """
    match = _RANGE.fullmatch(header) if header else None
    if match is None or match.groups() == ("", ""):
        return 0, size
    first, last = match.groups()
    if first:
        start, end = int(first), min(int(last) + 1 if last else size, size)
    else:
        start, end = max(0, size - int(last)), size
    if start >= end:
        raise HttpError(
            416,
            "The range lies outside the content.",
            headers={"content-range": f"bytes */{size}"},
        )
    return start, end
