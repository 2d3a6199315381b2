"""POST /v1/files: from the socket to the object store, never whole in memory."""

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable
from typing import IO

import grpc
import orjson

from windlass.api.files.v1 import files_pb2 as pb
from windlass.api.files.v1 import files_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.app import App
from windlass.core.objects import StoredObject
from windlass.gateway.asgi import JSON, ClientLeft, refuse_upload, respond
from windlass.gateway.errors import HttpError, to_http, too_large
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.openai.form import FormPart, MultipartForm
from windlass.gateway.openai.rendering import render_file

log = telemetry.logger("gateway.uploads")
# What the form may have beside the file.
FORM_BYTES = 256 * 1024
# What a file was converted from: field of the form to field of the message.
PROVENANCE = {
    f"windlass[provenance][{field.name}]": field for field in pb.Provenance.DESCRIPTOR.fields
}
FIELDS = frozenset({"purpose", "expires_after[anchor]", "expires_after[seconds]", *PROVENANCE})
ASIDE_MEMORY_BYTES = 2**20
PIECE_BYTES = 2**20
_COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)
_SECONDS = re.compile(r"0{0,32}[0-9]{1,10}", re.ASCII)


class FileUploads:
    """Receives files."""

    def __init__(self, app: App):
        self._files = app.clients.stub(rpc.FilesServiceStub)
        self._objects = app.objects
        self._max_bytes = app.settings.files.max_bytes
        self._folder = app.settings.data_dir / "spool" / "uploads"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def handle(self, exchange: HttpExchange) -> None:
        """Returns one upload; a refusal reaches a client that still sends."""
        try:
            length = exchange.headers.get(b"content-length", b"0")
            if length.isdigit() and int(length) > self._max_bytes + FORM_BYTES:
                raise too_large(self._max_bytes)
            form = MultipartForm(exchange.receive, exchange.headers.get(b"content-type", b""))
            file = await _Upload(self, form).run()
        except ClientLeft:
            raise
        except Exception as error:
            await refuse_upload(exchange.send, exchange.receive, to_http(error))
            return
        await respond(exchange.send, 200, [JSON], orjson.dumps(render_file(file)))

    async def store(
        self, chunks: AsyncIterator[bytes], filename: str, fields: dict[str, str]
    ) -> tuple[str, StoredObject]:
        """Puts content under a new ticket; returns the ticket; leaves nothing after a failure."""
        ticket = await self._files.CreateUpload(
            pb.CreateUploadRequest(
                filename=filename,
                purpose=fields["purpose"],
                expires_after=_expiry(fields),
                provenance=_provenance(fields),
            )
        )
        try:
            most = min(ticket.max_bytes, self._max_bytes)
            stored = await self._objects.put(ticket.object_key, chunks, max_bytes=most)
        except BaseException:
            await self.abort(ticket.upload_id)
            raise
        return ticket.upload_id, stored

    async def commit(self, upload_id: str, stored: StoredObject) -> pb.File:
        """Makes what was stored a file, or leaves nothing."""
        try:
            return await self._files.CommitFile(
                pb.CommitFileRequest(upload_id=upload_id, bytes=stored.bytes, sha256=stored.sha256)
            )
        except BaseException:
            await self.abort(upload_id)
            raise

    async def abort(self, upload_id: str) -> None:
        """Forgets an upload, even while this request is being cancelled."""
        request = self._files.AbortUpload(pb.AbortUploadRequest(upload_id=upload_id))
        with contextlib.suppress(grpc.aio.AioRpcError):
            await asyncio.shield(asyncio.ensure_future(_finished(request)))

    def aside(self) -> IO[bytes]:
        """A nameless file for content that comes before its purpose."""
        return tempfile.SpooledTemporaryFile(ASIDE_MEMORY_BYTES, dir=str(self._folder))

    @property
    def max_bytes(self) -> int:
        """The greatest size of a file."""
        return self._max_bytes


class _Upload:
    """One form on its way."""

    def __init__(self, uploads: FileUploads, form: MultipartForm):
        self._uploads = uploads
        self._form = form
        self._fields: dict[str, str] = {}
        self._stored: tuple[str, StoredObject] | None = None
        self._aside: tuple[str, IO[bytes]] | None = None

    async def run(self) -> pb.File:
        try:
            async for part in self._form.parts():
                await self._take(part)
            if self._aside is not None:
                self._require_purpose()
                filename, content = self._aside
                self._stored = await self._uploads.store(_pieces(content), filename, self._fields)
            if self._stored is None:
                raise _missing("file")
        except BaseException:
            if self._stored is not None:
                await self._uploads.abort(self._stored[0])
            raise
        finally:
            if self._aside is not None:
                self._aside[1].close()
        return await self._uploads.commit(*self._stored)

    async def _take(self, part: FormPart) -> None:
        if part.filename is None:
            await self._take_field(part.name)
            return
        if part.name != "file" or self._stored or self._aside:
            raise HttpError(400, "Send exactly one file, as 'file'.", param=part.name)
        if "purpose" in self._fields:
            self._stored = await self._uploads.store(self._form.data(), part.filename, self._fields)
        else:
            content = self._uploads.aside()
            self._aside = (part.filename, content)
            await _set_aside(self._form.data(), content, self._uploads.max_bytes)

    async def _take_field(self, name: str) -> None:
        if name not in FIELDS:
            raise HttpError(400, f"Unknown field {name[:64]!r}.", param=name[:64])
        if self._stored:
            raise HttpError(400, f"Send {name} before the file.", param=name)
        self._fields[name] = await self._form.text()

    def _require_purpose(self) -> None:
        if "purpose" not in self._fields:
            raise _missing("purpose")


async def _set_aside(chunks: AsyncIterator[bytes], content: IO[bytes], most: int) -> None:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise too_large(most)
        await asyncio.to_thread(content.write, chunk)


async def _pieces(content: IO[bytes]) -> AsyncIterator[bytes]:
    content.seek(0)
    while piece := await asyncio.to_thread(content.read, PIECE_BYTES):
        yield piece


async def _finished(call: Awaitable[object]) -> None:
    await call


def _expiry(fields: dict[str, str]) -> int:
    anchor = fields.get("expires_after[anchor]")
    seconds = fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return 0
    if anchor != "created_at":
        raise HttpError(
            400, "expires_after.anchor must be created_at.", param="expires_after.anchor"
        )
    if seconds is None or not _SECONDS.fullmatch(seconds) or not 0 < int(seconds) < 2**31:
        raise HttpError(
            400, "expires_after.seconds must be a number.", param="expires_after.seconds"
        )
    return int(seconds)


def _provenance(fields: dict[str, str]) -> pb.Provenance | None:
    """Returns what a file was converted from; raises HttpError where only some of it is given."""
    if fields.keys().isdisjoint(PROVENANCE):
        return None
    said = pb.Provenance()
    for name, field in PROVENANCE.items():
        param = f"windlass.provenance.{field.name}"
        if name not in fields:
            raise _missing(param)
        is_count = field.type == field.TYPE_INT64
        if is_count and not _COUNT.fullmatch(fields[name]):
            raise HttpError(400, f"{param} must be a whole number.", param=param)
        setattr(said, field.name, int(fields[name]) if is_count else fields[name])
    return said


def _missing(name: str) -> HttpError:
    return HttpError(
        400,
        f"Missing required parameter: '{name}'.",
        code="missing_required_parameter",
        param=name,
    )
