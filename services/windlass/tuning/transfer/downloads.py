"""Signed URLs of checkpoints: of each file, or of one archive."""

import tarfile
from collections.abc import AsyncIterator
from functools import partial

from windlass.core.clock import now_seconds
from windlass.core.objects import ObjectDamaged, ObjectStore
from windlass.tuning.domain import unknown_checkpoint
from windlass.tuning.storage.checkpoints import Row, WeightsStore, archive_of, prefix_of
from windlass.tuning.transfer.sharing import SharedWork

URL_SECONDS = 3600


class CheckpointDownloads:
    """URLs that end with their time, and earlier with the key that asked for them."""

    def __init__(self, objects: ObjectStore, checkpoints: WeightsStore, shared: SharedWork):
        self._objects = objects
        self._checkpoints = checkpoints
        self._shared = shared

    async def files(self, checkpoint: Row, holder: str) -> dict[str, str]:
        """The URL of each file; raises NotFound for a checkpoint whose content is gone."""
        prefix = prefix_of(checkpoint.project_id, checkpoint.id)
        names = [one.key.removeprefix(prefix) async for one in self._objects.list(prefix)]
        if not names:
            raise unknown_checkpoint(checkpoint.name)
        return {name: await self.sign(prefix + name, name, holder) for name in names}

    async def archive(self, checkpoint: Row, holder: str) -> dict[str, str]:
        """The URL of a tar file of all, which is made at the first time.

        Raises NotFound, Unavailable `still_being_made`.
        """
        key = archive_of(checkpoint.project_id, checkpoint.id)
        if await self._objects.head(key) is None:
            work = partial(self._pack, checkpoint, key)
            await self._shared.done(checkpoint.project_id, key, work)
        name = f"{checkpoint.name}.tar"
        return {name: await self.sign(key, name, holder)}

    async def sign(self, key: str, name: str, holder: str) -> str:
        """A URL that reads one object as a file of this name."""
        return await self._objects.presign_get(
            key, expires=URL_SECONDS, filename=name, holder=holder
        )

    async def _pack(self, checkpoint: Row, key: str) -> None:
        prefix = prefix_of(checkpoint.project_id, checkpoint.id)
        if not [one async for one in self._objects.list(prefix)]:
            raise unknown_checkpoint(checkpoint.name)
        await self._objects.put(key, _packed(self._objects, prefix))
        if await self._checkpoints.whole(checkpoint.id) is None:
            # Deleted meanwhile: whoever removed its content may have found no archive yet.
            await self._objects.delete(key)
            raise unknown_checkpoint(checkpoint.name)


def ends_at() -> int:
    """Returns the moment when a URL that is signed now ends."""
    return now_seconds() + URL_SECONDS


async def _packed(objects: ObjectStore, prefix: str) -> AsyncIterator[bytes]:
    """A tar file of what lies below a prefix, in bounded memory."""
    async for info in objects.list(prefix):
        member = tarfile.TarInfo(info.key.removeprefix(prefix))
        member.size, member.mode = info.bytes, 0o600
        member.mtime = int(info.modified_at.timestamp())
        yield member.tobuf(tarfile.GNU_FORMAT)
        left = info.bytes
        async for chunk in objects.get(info.key):
            left -= len(chunk)
            yield chunk
        if left:
            raise ObjectDamaged(f"{info.key} is not as long as it was.")
        yield bytes(-info.bytes % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)
