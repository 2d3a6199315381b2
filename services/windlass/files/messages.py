"""Domain records of files as messages of the contract."""

from typing import Any

from windlass.api.files.v1 import files_pb2 as pb
from windlass.files.domain import File

_STATUS = {
    "uploaded": pb.FILE_STATUS_UPLOADED,
    "processed": pb.FILE_STATUS_PROCESSED,
    "error": pb.FILE_STATUS_ERROR,
}


def file(record: File) -> pb.File:
    """A file."""
    return pb.File(
        id=record.id,
        project_id=record.project_id,
        filename=record.filename,
        purpose=record.purpose,
        bytes=record.size,
        created_at=record.created_at,
        expires_at=record.expires_at,
        status=_STATUS[record.status],
        status_details=record.status_details,
        dataset=pb.DatasetSummary(format=record.dataset_format, examples=record.examples),
        sha256=record.sha256,
        provenance=None if record.provenance is None else pb.Provenance(**record.provenance),
    )


def provenance(message: pb.Provenance) -> dict[str, Any]:
    """Returns what a file was converted from."""
    return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}


def file_object(record: File) -> pb.FileObject:
    """The object that holds a file's content."""
    return pb.FileObject(
        object_key=record.object_key,
        bytes=record.size,
        filename=record.filename,
        sha256=record.sha256,
    )
