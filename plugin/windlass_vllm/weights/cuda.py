"""Parameters on a GPU, which another process of the host opens by CUDA's IPC handles.

No test runs it with an engine: it is refused unless the engine is on a CPU.
"""

from collections.abc import Iterable

import torch

from windlass_vllm.refusal import Refused
from windlass_vllm.weights.handles import DTYPES, CudaShare, WeightHandles


def share_cuda(parameters: Iterable[torch.nn.Parameter]) -> tuple[CudaShare, ...]:
    """Returns one share for each parameter, in order; the memory stays where it is."""
    return tuple(CudaShare(*one.untyped_storage()._share_cuda_()) for one in parameters)


def open_cuda(handles: WeightHandles) -> dict[str, torch.Tensor]:
    """Returns the engine's parameters by name, as views of its memory; raises Refused."""
    if len(handles.shares) != len(handles.handles):
        raise Refused("foreign_handles", "a parameter has no handle of CUDA")
    found = {}
    for one, share in zip(handles.handles, handles.shares, strict=True):
        words = (share.device, share.handle, share.size, share.offset)
        counter = (share.counter, share.counter_offset, share.event, share.event_required)
        storage = torch.UntypedStorage._new_shared_cuda(*words, *counter)
        tensor = torch.empty(0, dtype=DTYPES[one.dtype], device=storage.device)
        first = one.offset // DTYPES[one.dtype].itemsize
        found[one.name] = tensor.set_(storage, first, one.shape, one.strides)
    return found
