"""Objects in an S3 bucket, through boto3 in threads of its own."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from windlass.core.objects.batches import Expectation, batched
from windlass.core.objects.multipart import MultipartUpload, part_bytes
from windlass.core.objects.port import (
    ObjectInfo,
    ObjectNotFound,
    ObjectStoreError,
    Sha256,
    StorageFull,
    StoredObject,
    StoreUnavailable,
    validate_key,
    validate_prefix,
)

T = TypeVar("T")

_THREADS = 16
_UNDO_SECONDS = 10.0
_READ_BYTES = 2**20
_DELETE_KEYS = 1000
_MISSING = {"404", "NoSuchKey", "NotFound"}
_FULL = {"507", "InsufficientStorage", "XMinioStorageFull", "QuotaExceeded"}


class S3Store:
    """An ObjectStore in `bucket`, below `prefix`; without keys, boto3 looks for credentials."""

    def __init__(
        self,
        *,
        bucket: str,
        prefix: str = "",
        endpoint_url: str | None = None,
        region: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
    ):
        self._bucket = bucket
        self._prefix = validate_prefix(prefix.rstrip("/") + "/") if prefix else ""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="s3")
        session = boto3.session.Session(
            aws_access_key_id=access_key_id,
            aws_secret_access_key=secret_access_key,
            region_name=region,
        )
        make = partial(session.client, "s3", endpoint_url=endpoint_url)
        foreign = endpoint_url is not None
        self._client = make(config=_config(foreign=foreign, attempts=4, connect=5, read=60))
        # Readiness must answer, not wait.
        self._prober = make(config=_config(foreign=foreign, attempts=1, connect=2, read=2))
        self._undoing: set[asyncio.Task[None]] = set()

    async def put(
        self,
        key: str,
        chunks: AsyncIterator[bytes],
        *,
        max_bytes: int | None = None,
        bytes: int | None = None,  # noqa: A002
        sha256: Sha256 | None = None,
    ) -> StoredObject:
        """See ObjectStore.put: parts of 8 MiB, three in flight; small objects in one request."""
        expected = Expectation(max_bytes=max_bytes, size=bytes, sha256=sha256)
        upload = MultipartUpload(self._call, Bucket=self._bucket, Key=self._name(key))
        hashed, size = hashlib.sha256(), 0
        try:
            async for batch in batched(chunks, expected, part_bytes):
                await self._run(hashed.update, batch)
                size += len(batch)
                await upload.add(batch)
            expected.check_whole(size, hashed.digest())
            await upload.complete()
        except BaseException:
            await self._undo(upload)
            raise
        return StoredObject(key=key, bytes=size, sha256=hashed.digest())

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """See ObjectStore.get."""
        if end is not None and end <= start:
            if await self.head(key) is None:
                raise ObjectNotFound(f"There is no object {key}.")
            return
        options = {}
        if start or end is not None:
            options["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        try:
            answer = await self._call(
                "get_object", Bucket=self._bucket, Key=self._name(key), **options
            )
        except _RangePastEnd:
            return
        body = answer["Body"]
        try:
            while chunk := await self._run(body.read, _READ_BYTES):
                yield chunk
        finally:
            body.close()

    async def head(self, key: str) -> ObjectInfo | None:
        """See ObjectStore.head."""
        try:
            found = await self._call("head_object", Bucket=self._bucket, Key=self._name(key))
        except ObjectNotFound:
            return None
        return ObjectInfo(key, found["ContentLength"], found["LastModified"])

    async def delete(self, key: str) -> None:
        """See ObjectStore.delete."""
        try:
            await self._call("delete_object", Bucket=self._bucket, Key=self._name(key))
        except ObjectNotFound:
            return

    async def delete_prefix(self, prefix: str) -> int:
        """See ObjectStore.delete_prefix."""
        count = 0
        batch: list[str] = []
        async for found in self.list(validate_prefix(prefix)):
            batch.append(found.key)
            if len(batch) == _DELETE_KEYS:
                count += await self._delete_all(batch)
                batch = []
        return count + await self._delete_all(batch)

    async def count(self, prefix: str) -> tuple[int, int]:
        """See ObjectStore.count."""
        number = size = 0
        async for found in self.list(validate_prefix(prefix)):
            number, size = number + 1, size + found.bytes
        return number, size

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore.list."""
        where = self._prefix + (validate_prefix(prefix) if prefix else "")
        more: dict[str, str] = {}
        while True:
            page = await self._call("list_objects_v2", Bucket=self._bucket, Prefix=where, **more)
            for found in page.get("Contents", ()):
                key = found["Key"].removeprefix(self._prefix)
                yield ObjectInfo(key, found["Size"], found["LastModified"])
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    async def digest(self, key: str) -> Sha256:
        """See ObjectStore.digest."""
        hashed = hashlib.sha256()
        async for chunk in self.get(key):
            await self._run(hashed.update, chunk)
        return hashed.digest()

    async def presign_get(
        self, key: str, *, expires: int, filename: str | None = None, holder: str = ""
    ) -> str:
        """See ObjectStore.presign_get."""
        parameters = {"Bucket": self._bucket, "Key": self._name(key)}
        if filename is not None:
            quoted = f"attachment; filename*=UTF-8''{quote(filename, safe='')}"
            parameters["ResponseContentDisposition"] = quoted
        return self._presign("get_object", parameters, expires)

    async def presign_put(
        self,
        key: str,
        *,
        expires: int,
        bytes: int | None = None,  # noqa: A002
        sha256: Sha256 | None = None,
        holder: str = "",
    ) -> str:
        """See ObjectStore.presign_put; the digest is not bound."""
        parameters: dict[str, Any] = {"Bucket": self._bucket, "Key": self._name(key)}
        if bytes is not None:
            parameters["ContentLength"] = bytes
        return self._presign("put_object", parameters, expires)

    async def check(self) -> None:
        """See ObjectStore.check; it asks for the bucket."""
        await self._run(partial(self._prober.head_bucket, Bucket=self._bucket))

    async def close(self) -> None:
        """Waits for uploads that are being undone, then ends threads and connections."""
        if self._undoing:
            await asyncio.wait(self._undoing, timeout=_UNDO_SECONDS)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()
        self._prober.close()

    async def _undo(self, upload: MultipartUpload) -> None:
        task = asyncio.create_task(upload.abort())
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)
        # A cancelled waiter leaves the task at work.
        await asyncio.wait({task}, timeout=_UNDO_SECONDS)

    def _name(self, key: str) -> str:
        return self._prefix + validate_key(key)

    def _presign(self, operation: str, parameters: Mapping[str, Any], expires: int) -> str:
        url: str = self._client.generate_presigned_url(
            operation, Params=dict(parameters), ExpiresIn=expires
        )
        return url

    async def _delete_all(self, keys: Sequence[str]) -> int:
        if not keys:
            return 0
        answer = await self._call(
            "delete_objects",
            Bucket=self._bucket,
            Delete={"Objects": [{"Key": self._name(key)} for key in keys], "Quiet": True},
        )
        if errors := answer.get("Errors"):
            raise StoreUnavailable(
                f"{len(errors)} objects were not deleted: {errors[0].get('Message')}"
            )
        return len(keys)

    async def _call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        return await self._run(partial(getattr(self._client, operation), **parameters))

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, function, *arguments)
        except ClientError as error:
            raise _translated(error) from error
        except (BotoCoreError, HTTPClientError) as error:
            raise StoreUnavailable(f"The S3 store does not answer: {error}") from error


class _RangePastEnd(ObjectStoreError):
    """The object has no byte there."""


def _translated(error: ClientError) -> ObjectStoreError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _MISSING:
        return ObjectNotFound("The object does not exist.")
    if code in {"InvalidRange", "416"}:
        return _RangePastEnd("The range lies outside the object.")
    if code in _FULL or status == 507:
        return StorageFull("The object store is full.")
    if status >= 500 or code in {"SlowDown", "RequestTimeout"}:
        return StoreUnavailable(f"The S3 store failed: {error}")
    return ObjectStoreError(f"The S3 store refused the request: {error}")


def _config(*, foreign: bool, attempts: int, connect: float, read: float) -> Config:
    # Many servers besides AWS refuse or misread the checksums that boto3 adds of itself. There
    # the signature covers the payload; on AWS a CRC does, which is cheaper.
    checksums = "when_required" if foreign else "when_supported"
    return Config(
        signature_version="s3v4",
        s3={"addressing_style": "path"} if foreign else {},
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=connect,
        read_timeout=read,
        max_pool_connections=_THREADS,
        request_checksum_calculation=checksums,
        response_checksum_validation=checksums,
    )
