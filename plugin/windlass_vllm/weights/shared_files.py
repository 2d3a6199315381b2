"""Parameters in one file in memory, which the engine and its training worker both map."""

import mmap
import os
from collections.abc import Mapping

import torch

from windlass_vllm.refusal import Refused
from windlass_vllm.weights.handles import DTYPES, WEIGHTS, WeightHandles
from windlass_vllm.weights.private_folder import PrivateFolder

_ALIGNMENT = 4096


def place(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Returns the offset of each parameter by name, and the size of the file, in bytes."""
    offsets, end = {}, 0
    for name, size in sizes.items():
        offsets[name] = end
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return offsets, end


def share(
    folder: PrivateFolder,
    parameters: Mapping[str, torch.nn.Parameter],
    offsets: Mapping[str, int],
    size: int,
) -> None:
    """Moves parameters into a new file and leaves each a view of it; raises Refused without room.

    Blocks are reserved first: a page that memory lacks later would kill whoever writes it.
    """
    with folder.opened(WEIGHTS, new=True) as descriptor:
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            os.ftruncate(descriptor, 0)
            message = f"the weights need {size} bytes of files in memory: {error}"
            raise Refused("no_room", message) from error
        whole = _mapped(descriptor, size)
    for name, parameter in parameters.items():
        view = _view(whole, offsets[name], parameter.dtype, tuple(parameter.shape))
        view.copy_(parameter.data)
        parameter.data = view


def open_shared(folder: PrivateFolder, handles: WeightHandles) -> dict[str, torch.Tensor]:
    """Returns the engine's parameters by name, as views of its memory; raises Refused."""
    with folder.opened(WEIGHTS) as descriptor:
        if os.fstat(descriptor).st_size != handles.size:
            raise Refused("foreign_handles", "the file of weights has another size")
        whole = _mapped(descriptor, handles.size)
    return {
        one.name: _view(whole, one.offset, DTYPES[one.dtype], one.shape) for one in handles.handles
    }


def _mapped(descriptor: int, size: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)


def _view(
    whole: torch.Tensor, offset: int, dtype: torch.dtype, shape: tuple[int, ...]
) -> torch.Tensor:
    size = torch.Size(shape).numel() * dtype.itemsize
    return whole[offset : offset + size].view(dtype).view(shape)
