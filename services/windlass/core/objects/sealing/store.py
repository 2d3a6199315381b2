"""An object store that seals what belongs to projects with a key of their own."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from windlass.core.clock import now_seconds
from windlass.core.errors import AppError, NotFound
from windlass.core.objects.batches import Expectation, batched
from windlass.core.objects.filesystem import FilesystemStore
from windlass.core.objects.port import (
    ObjectDamaged,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    SealingKeyUnavailable,
    Sha256,
    SignatureInvalid,
    StoredObject,
    validate_key,
)
from windlass.core.objects.sealing.frames import (
    HEADER_BYTES,
    FrameCipher,
    FrameWriter,
    Header,
    new_header,
    parse_header,
    plain_bytes,
)
from windlass.core.objects.sealing.keys import ObjectKey, ObjectKeys, project_of
from windlass.core.objects.sealing.opened import OpenSealed, damaged
from windlass.core.objects.sealing.plain import open_plain
from windlass.core.objects.served import OpenObject
from windlass.core.objects.signing import SignedRequest, UrlSigner

_BATCH_BYTES = 2**20


class SealedStore:
    """A ServedStore over another one. What is no such project's passes as it is.

    What was stored before its project had a key stays as it is, and is read as that.
    """

    def __init__(
        self,
        inner: ObjectStore,
        keys: ObjectKeys,
        *,
        public_url: str,
        secret: bytes,
        project_of: Callable[[str], str] = project_of,
    ):
        """`project_of` says whose object a key names; empty for nobody's."""
        self._inner = inner
        self._project_of = project_of
        self._keys = keys
        # Of its own: the inner store would give away what is sealed to whom its URLs permit it.
        self._signer = UrlSigner(public_url, hashlib.sha256(b"sealed objects" + secret).digest())

    def file(self, url: str) -> Path | None:
        """See ServedStore.file; URLs of sealed objects read none."""
        return self._inner.file(url) if isinstance(self._inner, FilesystemStore) else None

    async def put(
        self,
        key: str,
        chunks: AsyncIterator[bytes],
        *,
        max_bytes: int | None = None,
        bytes: int | None = None,  # noqa: A002
        sha256: Sha256 | None = None,
    ) -> StoredObject:
        """See ObjectStore.put; raises SealingKeyUnavailable before anything is taken."""
        sealing = await self._sealing(key)
        if sealing is None:
            return await self._inner.put(
                key, chunks, max_bytes=max_bytes, bytes=bytes, sha256=sha256
            )
        expected = Expectation(max_bytes=max_bytes, size=bytes, sha256=sha256)
        return await self._put_sealed(key, chunks, sealing, expected)

    async def take(self, request: SignedRequest, chunks: AsyncIterator[bytes]) -> StoredObject:
        """See ServedStore.take; what was to be sealed is refused once its project is erased."""
        key = request.key
        if not request.is_sealed:
            return await self.put(key, chunks, bytes=request.bytes, sha256=request.sha256)
        sealing = await self._sealing(key)
        if sealing is None:
            raise _erased(key)
        expected = Expectation(max_bytes=None, size=request.bytes, sha256=request.sha256)
        return await self._put_sealed(key, chunks, sealing, expected)

    async def give(self, request: SignedRequest) -> OpenObject:
        """See ServedStore.give; of an erased project nothing is given as it lies there."""
        if request.is_sealed and not await self._seals(request.key):
            raise _erased(request.key)
        return await self.open(request.key)

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """See ObjectStore.get; raises SealingKeyUnavailable and ObjectDamaged."""
        if not await self._seals(key):
            async for chunk in self._inner.get(key, start=start, end=end):
                yield chunk
            return
        opened = await self.open(key)
        stop = opened.size if end is None else min(end, opened.size)
        async with aclosing(opened.read(start, stop)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def open(self, key: str) -> OpenObject:
        """See ServedStore.open."""
        if not await self._seals(key):
            return await open_plain(self._inner, key)
        info, header = await asyncio.gather(self._inner.head(key), self._header(key))
        if info is None:
            raise ObjectNotFound(f"There is no object {key}.")
        if header is None:
            return await open_plain(self._inner, key)
        confirm = partial(self._opening, key, header.key_id)
        cipher = FrameCipher((await confirm()).secret, header, key)
        return OpenSealed(self._inner, key, cipher, _size(key, info.bytes), confirm)

    async def head(self, key: str) -> ObjectInfo | None:
        """See ObjectStore.head; it needs no key."""
        info = await self._inner.head(key)
        return None if info is None else await self._as_plain(info)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore.list; it reads the beginning of each object that may be sealed."""
        async for info in self._inner.list(prefix):
            try:
                found = await self._as_plain(info)
            except ObjectDamaged:
                # Whoever reads it is told; the others are to be found.
                found = info
            if found is not None:
                yield found

    async def delete(self, key: str) -> None:
        """See ObjectStore.delete; it needs no key."""
        await self._inner.delete(key)

    async def delete_prefix(self, prefix: str) -> int:
        """See ObjectStore.delete_prefix; it needs no key."""
        return await self._inner.delete_prefix(prefix)

    async def count(self, prefix: str) -> tuple[int, int]:
        """See ObjectStore.count; it needs no key."""
        return await self._inner.count(prefix)

    async def digest(self, key: str) -> Sha256:
        """See ObjectStore.digest."""
        if not await self._seals(key):
            return await self._inner.digest(key)
        hashed = hashlib.sha256()
        async for chunk in self.get(key):
            await asyncio.to_thread(hashed.update, chunk)
        return hashed.digest()

    async def presign_get(
        self, key: str, *, expires: int, filename: str | None = None, holder: str = ""
    ) -> str:
        """See ObjectStore.presign_get."""
        if not await self._seals(key):
            return await self._inner.presign_get(
                key, expires=expires, filename=filename, holder=holder
            )
        until = now_seconds() + expires
        request = SignedRequest("GET", validate_key(key), until, filename=filename, holder=holder)
        return self._signer.url(request)

    async def presign_put(
        self,
        key: str,
        *,
        expires: int,
        bytes: int | None = None,  # noqa: A002
        sha256: Sha256 | None = None,
        holder: str = "",
    ) -> str:
        """See ObjectStore.presign_put; of what is sealed the digest is bound too."""
        if not await self._seals(key):
            return await self._inner.presign_put(
                key, expires=expires, bytes=bytes, sha256=sha256, holder=holder
            )
        until = now_seconds() + expires
        request = SignedRequest(
            "PUT", validate_key(key), until, bytes=bytes, sha256=sha256, holder=holder
        )
        return self._signer.url(request)

    def verify(self, method: str, key: str, query: Mapping[str, str]) -> SignedRequest:
        """See ServedStore.verify; a folder's own URLs too, of before its project had a key."""
        try:
            return replace(self._signer.verify(method, key, query), is_sealed=True)
        except SignatureInvalid:
            if isinstance(self._inner, FilesystemStore):
                return self._inner.verify(method, key, query)
            raise

    async def check(self) -> None:
        """See ObjectStore.check."""
        await self._inner.check()

    async def close(self) -> None:
        """See ObjectStore.close."""
        await self._inner.close()

    async def _seals(self, key: str) -> bool:
        project_id = self._project_of(key)
        if not project_id:
            return False
        with _keys_errors(key):
            return await self._keys.seals(project_id)

    async def _sealing(self, key: str) -> ObjectKey | None:
        project_id = self._project_of(key)
        if not project_id:
            return None
        with _keys_errors(key):
            return await self._keys.sealing(project_id)

    async def _opening(self, key: str, key_id: str) -> ObjectKey:
        with _keys_errors(key):
            return await self._keys.opening(self._project_of(key), key_id)

    async def _put_sealed(
        self, key: str, chunks: AsyncIterator[bytes], sealing: ObjectKey, expected: Expectation
    ) -> StoredObject:
        stream = _SealedStream(sealing, key)
        async with aclosing(stream.of(chunks, expected)) as sealed:
            await self._inner.put(key, sealed)
        return StoredObject(key=key, bytes=stream.size, sha256=stream.digest)

    async def _header(self, key: str) -> Header | None:
        beginning = [part async for part in self._inner.get(key, end=HEADER_BYTES)]
        try:
            return parse_header(b"".join(beginning))
        except ValueError as error:
            raise damaged(key) from error

    async def _as_plain(self, info: ObjectInfo) -> ObjectInfo | None:
        """Returns what is known of an object, by its plain size; None for one that is gone."""
        if not await self._seals(info.key):
            return info
        try:
            header = await self._header(info.key)
        except ObjectNotFound:
            return None
        return info if header is None else replace(info, bytes=_size(info.key, info.bytes))


class _SealedStream:
    """Content on its way into the store: sealed, measured, and hashed as it was."""

    def __init__(self, key: ObjectKey, name: str):
        self._header = new_header(key.id)
        self._writer = FrameWriter(FrameCipher(key.secret, self._header, name))
        self._hashed = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> Sha256:
        """Digest of what was sealed."""
        return self._hashed.digest()

    async def of(
        self, chunks: AsyncIterator[bytes], expected: Expectation
    ) -> AsyncGenerator[bytes, None]:
        """The stored form; raises as Expectation before its end, so that nothing is stored."""
        yield bytes(self._header)
        async for batch in batched(chunks, expected, lambda _: _BATCH_BYTES):
            yield await asyncio.to_thread(self._add, batch)
            self.size += len(batch)
        expected.check_whole(self.size, self.digest)
        yield self._writer.finish()

    def _add(self, batch: bytes) -> bytes:
        self._hashed.update(batch)
        return self._writer.add(batch)


@contextmanager
def _keys_errors(key: str) -> Iterator[None]:
    """Raises what the keys raise as the store's: SealingKeyUnavailable and ObjectDamaged."""
    try:
        yield
    except NotFound as error:
        raise damaged(key) from error
    except AppError as error:
        raise SealingKeyUnavailable(error.message, reason=error.reason) from error


def _erased(key: str) -> ObjectNotFound:
    return ObjectNotFound(f"The project of {key} was erased, and its keys with it.")


def _size(key: str, stored: int) -> int:
    try:
        return plain_bytes(stored)
    except ValueError as error:
        raise damaged(key) from error
