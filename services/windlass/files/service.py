"""The servicers of files."""

from functools import partial
from typing import Any

from windlass.api.files.v1 import files_pb2 as pb
from windlass.api.files.v1 import files_pb2_grpc as rpc
from windlass.api.jobs.v1 import jobs_pb2, jobs_pb2_grpc
from windlass.core.clock import now_seconds
from windlass.core.db.paging import page_size, read_fitting
from windlass.core.db.wake import Wake
from windlass.core.errors import FailedPrecondition, InvalidArgument, PermissionDenied
from windlass.core.ids import new_id
from windlass.core.killpoints import reach
from windlass.core.objects import ObjectStore
from windlass.core.rpc.auth import current
from windlass.files import messages
from windlass.files.domain import (
    INSPECT_AT_ONCE_BYTES,
    File,
    InspectionResult,
    Upload,
    valid_expiry,
    valid_filename,
    valid_provenance,
    valid_purpose,
)
from windlass.files.inspection import inspect
from windlass.files.store import FileStore

MAX_LIST = 10_000
# Of a list, read at once: at their largest they fill a message.
FILES_AT_ONCE = 1000


class FilesServicer(rpc.FilesServiceServicer):
    """FilesService."""

    def __init__(
        self,
        store: FileStore,
        objects: ObjectStore,
        wake: Wake,
        jobs: jobs_pb2_grpc.JobsInternalServiceAsyncStub,
        *,
        max_bytes: int,
    ):
        self._store = store
        self._objects = objects
        self._wake = wake
        self._jobs = jobs
        self._max_bytes = max_bytes

    async def CreateUpload(self, request: pb.CreateUploadRequest, context: Any) -> pb.UploadTicket:
        """A ticket for one upload."""
        principal = current()
        project_id = principal.require_project()
        file_id = new_id("file-")
        provenance = None
        if request.HasField("provenance"):
            provenance = valid_provenance(messages.provenance(request.provenance))
        upload = Upload(
            id=new_id("upload_"),
            file_id=file_id,
            organization_id=principal.organization_id,
            project_id=project_id,
            filename=valid_filename(request.filename),
            purpose=valid_purpose(request.purpose),
            expires_after=valid_expiry(request.expires_after),
            object_key=f"files/{project_id}/{file_id}",
            provenance=provenance,
        )
        await self._store.create_upload(upload)
        return pb.UploadTicket(
            upload_id=upload.id, object_key=upload.object_key, max_bytes=self._max_bytes
        )

    async def CommitFile(self, request: pb.CommitFileRequest, context: Any) -> pb.File:
        """Makes the uploaded object a file; a small fine-tuning file must be a good one."""
        upload = await self._store.upload(current().require_project(), request.upload_id)
        info = await self._objects.head(upload.object_key)
        if info is None or info.bytes != request.bytes:
            raise FailedPrecondition(
                "The content is missing or differs from what was announced; upload it again.",
                reason="upload_incomplete",
            )
        verdict = InspectionResult("processed")
        if upload.purpose == "fine-tune":
            verdict = await self._judge(upload, request.bytes)
        reach("files.uploaded")
        try:
            file = await self._store.commit(
                upload, size=request.bytes, sha256=request.sha256, verdict=verdict
            )
        except PermissionDenied:
            # More than the quota of stored bytes: it is not stored.
            await self._discard(upload)
            raise
        reach("files.committed")
        self._wake.touch("files")
        return messages.file(file)

    async def _judge(self, upload: Upload, size: int) -> InspectionResult:
        if size > INSPECT_AT_ONCE_BYTES:
            return InspectionResult("uploaded")
        verdict = await inspect(self._objects, upload.object_key)
        if verdict.status == "error":
            await self._discard(upload)
            raise InvalidArgument(
                f"{upload.filename}: {verdict.details}",
                reason="invalid_training_file",
                param="file",
            )
        return verdict

    async def _discard(self, upload: Upload) -> None:
        await self._store.drop_upload(upload.project_id, upload.id)
        await self._objects.delete(upload.object_key)

    async def AbortUpload(
        self, request: pb.AbortUploadRequest, context: Any
    ) -> pb.AbortUploadResponse:
        """Forgets an upload and what arrived of it; a committed one is left alone."""
        project_id = current().require_project()
        upload = await self._store.upload(project_id, request.upload_id)
        await self._store.drop_upload(project_id, upload.id)
        if await self._store.is_free(upload.object_key):
            await self._objects.delete(upload.object_key)
        return pb.AbortUploadResponse()

    async def ListFiles(self, request: pb.ListFilesRequest, context: Any) -> pb.ListFilesResponse:
        """The project's files."""
        if request.order not in ("", "asc", "desc"):
            raise InvalidArgument("order must be asc or desc.", param="order")
        size = page_size(request.limit, default=MAX_LIST, max_limit=MAX_LIST)
        wanted = partial(
            self._store.list,
            current().require_project(),
            purpose=request.purpose,
            ascending=request.order == "asc",
        )
        page, more = await read_fitting(
            lambda after, limit: wanted(after=after, limit=limit),
            messages.file,
            lambda file: file.id,
            after=request.after,
            size=size,
            at_once=FILES_AT_ONCE,
        )
        return pb.ListFilesResponse(files=page, has_more=more)

    async def GetFile(self, request: pb.GetFileRequest, context: Any) -> pb.File:
        """Returns one file."""
        file = await self._store.get(current().require_project(), request.file_id)
        return messages.file(file)

    async def GetFileObject(self, request: pb.GetFileObjectRequest, context: Any) -> pb.FileObject:
        """The object that holds the content."""
        file = await self._store.get(current().require_project(), request.file_id)
        return messages.file_object(file)

    async def DeleteFile(
        self, request: pb.DeleteFileRequest, context: Any
    ) -> pb.DeleteFileResponse:
        """Removes a file that no live job uses."""
        project_id = current().require_project()
        file = await self._store.get(project_id, request.file_id)
        uses = await self._jobs.FindUses(jobs_pb2.FindUsesRequest(file_id=file.id))
        if uses.job_ids:
            raise FailedPrecondition(
                f"The job {uses.job_ids[0]} uses this file; cancel it first.",
                reason="file_in_use",
                param="id",
            )
        await self._store.mark_deleting(project_id, file.id)
        self._wake.touch("files")
        return pb.DeleteFileResponse()


class FilesInternalServicer(rpc.FilesInternalServiceServicer):
    """FilesInternalService."""

    def __init__(self, store: FileStore):
        self._store = store

    async def GetFile(self, request: pb.InternalGetFileRequest, context: Any) -> pb.File:
        """Returns one file of a project."""
        return messages.file(await self._store.get(request.project_id, request.file_id))

    async def GetFileObject(
        self, request: pb.InternalGetFileRequest, context: Any
    ) -> pb.FileObject:
        """The object that holds the content."""
        return messages.file_object(await self._store.get(request.project_id, request.file_id))

    async def RegisterFile(self, request: pb.RegisterFileRequest, context: Any) -> pb.File:
        """Makes an object that a service wrote a file; idempotent by source."""
        file = File(
            id=new_id("file-"),
            organization_id=request.organization_id,
            project_id=request.project_id,
            filename=valid_filename(request.filename),
            purpose=request.purpose,
            size=request.bytes,
            sha256=request.sha256,
            created_at=now_seconds(),
            expires_at=0,
            status="processed",
            status_details="",
            dataset_format="",
            examples=0,
            object_key=request.object_key,
        )
        return messages.file(await self._store.register(file, request.source))
