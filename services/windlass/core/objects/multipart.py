"""One upload to S3 in parts, a bounded number of them in flight."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol

from windlass.core.objects.port import ObjectStoreError

_PART_BYTES = 8 * 2**20
_IN_FLIGHT = 3
_GROW_EVERY = 1000


def part_bytes(number: int) -> int:
    """The size of the n-th part: it grows, since S3 takes at most 10,000 of them."""
    return _PART_BYTES * (1 + number // _GROW_EVERY)


class S3Operation(Protocol):
    """Calls an operation of S3 by name."""

    def __call__(self, operation: str, **parameters: Any) -> Coroutine[Any, Any, dict[str, Any]]:
        """Raises ObjectStoreError."""
        ...


class MultipartUpload:
    """Sends batches as parts; a single batch goes as one plain object."""

    def __init__(self, call: S3Operation, **target: str):
        self._call = call
        self._target = target
        self._begun: asyncio.Task[dict[str, Any]] | None = None
        self._held: bytes | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._etags: list[str] = []
        self._failure: ObjectStoreError | None = None
        self._room = asyncio.Semaphore(_IN_FLIGHT)

    async def add(self, batch: bytes) -> None:
        """Adds a part; waits for a free slot and raises the error of an earlier part."""
        held, self._held = self._held, batch
        if held is not None:
            await self._send(held)

    async def complete(self) -> None:
        """Makes the object visible."""
        held, self._held = self._held, None
        if self._begun is None:
            await self._call("put_object", **self._target, Body=held or b"")
            return
        if held is not None:
            await self._send(held)
        await self._all_sent()
        if self._failure is not None:
            raise self._failure
        parts = [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(self._etags, 1)]
        await self._call(
            "complete_multipart_upload",
            **await self._upload(),
            MultipartUpload={"Parts": parts},
        )

    async def abort(self) -> None:
        """Removes the parts, once none is in flight any more: a late one would stay for ever."""
        self._held = None
        await self._all_sent()
        # The upload may be gone: completed after all, or with its server.
        with suppress(ObjectStoreError):
            if self._begun is not None:
                await self._call("abort_multipart_upload", **await self._upload())

    async def _upload(self) -> dict[str, str]:
        if self._begun is None:
            create = self._call("create_multipart_upload", **self._target)
            self._begun = asyncio.create_task(create)
        # Shielded: an upload whose id nobody learned could not be aborted.
        begun = await asyncio.shield(self._begun)
        return {**self._target, "UploadId": begun["UploadId"]}

    async def _send(self, batch: bytes) -> None:
        upload = await self._upload()
        await self._room.acquire()
        if self._failure is not None:
            raise self._failure
        self._etags.append("")
        sending = asyncio.create_task(self._send_part(upload, len(self._etags), batch))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send_part(self, upload: dict[str, str], number: int, batch: bytes) -> None:
        try:
            sent = await self._call("upload_part", **upload, PartNumber=number, Body=batch)
            self._etags[number - 1] = sent["ETag"]
        except ObjectStoreError as error:
            self._failure = self._failure or error
        finally:
            self._room.release()

    async def _all_sent(self) -> None:
        if self._sending:
            await asyncio.wait(self._sending)
