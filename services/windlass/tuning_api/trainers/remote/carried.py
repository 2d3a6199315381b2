"""Folders of operations as a trainer's process finds them: there already, or carried."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from windlass.api.trainer.v1 import trainer_pb2 as pb
from windlass.api.trainer.v1 import trainer_pb2_grpc as rpc
from windlass.core.ids import new_id
from windlass.tuning_api.trainers.records import (
    FolderWritten,
    LoadState,
    Operation,
    Outcome,
    SaveAdapter,
    SaveState,
)
from windlass.tuning_api.trainers.remote.file_parts import parts_of, written

# Weights for samples that stay with the process, the least recently asked for first: so many, and
# more as long as all of them are small, as adapters are.
KEPT, KEPT_BYTES = 2, 2 * 2**30
Metadata = tuple[tuple[str, str], ...]


class OperationFolders(Protocol):
    """Makes folders of the caller those of the process, and back; raises what its calls do."""

    async def sent(self, asked: Sequence[Operation]) -> Sequence[Operation]:
        """Operations as the process takes them, what they read being there."""
        ...

    async def fetched(self, asked: Sequence[Operation], outcomes: Sequence[Outcome]) -> None:
        """Brings what operations that were sent last have written."""
        ...

    def lent(self, folder: Path | None) -> Any:
        """A block in which the process has a folder, by the path that it yields."""
        ...


class SeenFolders:
    """Implements `OperationFolders` for a process that sees those of the caller."""

    async def sent(self, asked: Sequence[Operation]) -> Sequence[Operation]:
        """The same."""
        return asked

    async def fetched(self, asked: Sequence[Operation], outcomes: Sequence[Outcome]) -> None:
        """Brings nothing: it is there."""

    @asynccontextmanager
    async def lent(self, folder: Path | None) -> AsyncIterator[Path | None]:
        """The folder itself."""
        yield folder


@dataclass(eq=False)
class _Copy:
    path: str
    uses: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_there: bool = False
    size: int = 0


class CarriedFolders:
    """Implements `OperationFolders` for a process on another machine: files go by its calls."""

    def __init__(self, stub: rpc.TrainerServiceAsyncStub, metadata: Metadata, max_bytes: int):
        self._stub = stub
        self._metadata = metadata
        self._max_bytes = max_bytes
        self._copies: OrderedDict[Path, _Copy] = OrderedDict()
        # Of operations that were sent, by the caller's folder.
        self._paths: dict[Path, str] = {}

    async def sent(self, asked: Sequence[Operation]) -> Sequence[Operation]:
        """Sends what they load; each folder has a name of its own there."""
        there: list[Operation] = []
        for operation in asked:
            if not isinstance(operation, LoadState | SaveState | SaveAdapter):
                there.append(operation)
                continue
            path = self._paths[operation.folder] = new_id("folder_")
            if isinstance(operation, LoadState):
                await self._send(operation.folder, path)
            there.append(replace(operation, folder=Path(path)))
        return there

    async def fetched(self, asked: Sequence[Operation], outcomes: Sequence[Outcome]) -> None:
        """Brings what they saved, and leaves nothing of them there."""
        for operation, outcome in zip(asked, outcomes, strict=True):
            if not isinstance(operation, LoadState | SaveState | SaveAdapter):
                continue
            path = self._paths.pop(operation.folder)
            if isinstance(outcome, FolderWritten):
                await self._fetch(path, operation.folder)
            await self._remove(path)

    @asynccontextmanager
    async def lent(self, folder: Path | None) -> AsyncIterator[Path | None]:
        """A copy of the folder, which stays for the next time while there is room."""
        if folder is None:
            yield None
            return
        copy = self._copies.setdefault(folder, _Copy(new_id("folder_")))
        self._copies.move_to_end(folder)
        copy.uses += 1
        try:
            async with copy.lock:
                if not copy.is_there:
                    copy.size = await asyncio.to_thread(_size, folder)
                    await self._make_room()
                    await self._send(folder, copy.path)
                    copy.is_there = True
            yield Path(copy.path)
        finally:
            copy.uses -= 1

    async def _make_room(self) -> None:
        for folder in [one for one, copy in self._copies.items() if not copy.uses]:
            size = sum(copy.size for copy in self._copies.values())
            if len(self._copies) <= KEPT or size <= KEPT_BYTES:
                return
            if copy := self._copies.pop(folder, None):
                await self._remove(copy.path)

    async def _send(self, folder: Path, path: str) -> None:
        call: Any = self._stub.WriteFolder(parts_of(folder, path), metadata=self._metadata)
        await call

    async def _fetch(self, path: str, folder: Path) -> None:
        call: Any = self._stub.ReadFolder(pb.Folder(path=path), metadata=self._metadata)
        parts = aiter(call)
        await written(await anext(parts), parts, folder, max_bytes=self._max_bytes)

    async def _remove(self, path: str) -> None:
        await self._stub.RemoveFolder(pb.Folder(path=path), metadata=self._metadata)


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.iterdir())
