"""Tensors that leave their device for the host's memory, and come back with the same bits."""

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import torch

_PIECE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class _ParkedView:
    """A tensor's view of its storage."""

    tensor: torch.Tensor
    storage: int
    offset: int
    size: torch.Size
    stride: tuple[int, ...]


@dataclass(frozen=True)
class _Kept:
    """Bytes of a storage: where they lie in the file, and whose they were."""

    at: int
    size: int
    device: torch.device


class ParkedTensors:
    """Bytes in the host's memory, in a file without a name, which goes with the process.

    Tensors stay the same objects, and those that shared a storage share one again. On a CPU the
    process's own memory is the device: it shrinks by what is parked.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]):
        self._file = os.memfd_create("parked", os.MFD_CLOEXEC)
        self._places: list[_ParkedView] = []
        self._storages: dict[int, _Kept] = {}
        self.size = 0
        try:
            self._write({id(one): one for one in tensors}.values())
        except BaseException:
            os.close(self._file)
            raise
        for place in self._places:
            place.tensor.data = torch.empty(0, dtype=place.tensor.dtype, device=place.tensor.device)
        _give_back()

    def restore(self) -> None:
        """Brings everything back to its device; nothing is parked any more."""
        made = {key: self._read(kept) for key, kept in self._storages.items()}
        for place in self._places:
            view = torch.empty(0, dtype=place.tensor.dtype, device=place.tensor.device)
            view.set_(made[place.storage], place.offset, place.size, place.stride)
            place.tensor.data = view
        self._places.clear()
        os.close(self._file)

    def _write(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if not storage.nbytes():
                continue
            key = storage.data_ptr()
            if key not in self._storages:
                self._storages[key] = _Kept(self.size, storage.nbytes(), tensor.device)
                self._append(storage)
            self._places.append(
                _ParkedView(tensor, key, tensor.storage_offset(), tensor.shape, tensor.stride())
            )

    def _append(self, storage: torch.UntypedStorage) -> None:
        content = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        for piece in content.split(_PIECE_BYTES):
            view = memoryview(piece.cpu().numpy())
            while view:
                written = os.write(self._file, view)
                view = view[written:]
                self.size += written

    def _read(self, kept: _Kept) -> torch.UntypedStorage:
        content = torch.empty(kept.size, dtype=torch.uint8)
        view, at = memoryview(content.numpy()), kept.at
        while view:
            read = os.preadv(self._file, [view], at)
            view, at = view[read:], at + read
        return content.to(kept.device).untyped_storage()


def _give_back() -> None:
    """Has allocators give back what is free, to the device and to the system."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
