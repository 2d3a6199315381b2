"""The words on an engine's parameters that another process needs to see them as tensors."""

import hashlib
import hmac
import math

import msgspec
import torch

from windlass_vllm.refusal import Refused
from windlass_vllm.weights.private_folder import PrivateFolder

HANDLES, WEIGHTS = "handles", "weights"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Types that an optimizer steps."""
_FORMAT = 1
_DIGEST = 32
_MOST_BYTES = 64 * 2**20


class Handle(msgspec.Struct, frozen=True):
    """One parameter of the engine: where it lies, and where it may be cut into others' parameters.

    `offset` is in bytes, `strides` in elements, `cuts` are rows, among them 0 and the last, and
    `rows` are those without padding.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    rows: int
    cuts: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the parameter."""
        return int(math.prod(self.shape) * DTYPES[self.dtype].itemsize)


class CudaShare(msgspec.Struct, frozen=True):
    """A handle of CUDA for one allocation, by which another process of the host opens it."""

    device: int
    handle: bytes
    size: int
    offset: int
    counter: bytes
    counter_offset: int
    event: bytes
    event_required: bool


class WeightHandles(msgspec.Struct, frozen=True, kw_only=True):
    """All parameters of an engine, of one generation.

    `size` is that of the file in bytes; `config` is the model's, in JSON; `packed` are modules that
    hold others, in order; `prefixes` lead from names of Hugging Face to the engine's.
    """

    format: int = _FORMAT
    generation: int
    device: str
    size: int
    context: int
    config: str
    packed: dict[str, tuple[str, ...]]
    prefixes: dict[str, str]
    handles: tuple[Handle, ...]
    shares: tuple[CudaShare, ...] = ()


def write_handles(folder: PrivateFolder, handles: WeightHandles, key: bytes) -> None:
    """Writes handles that only holders of the key can make."""
    content = msgspec.msgpack.encode(handles)
    folder.replace(HANDLES, _digest(content, key) + content)


def read_handles(folder: PrivateFolder, generation: int, key: bytes) -> WeightHandles:
    """Returns the handles of a generation; raises Refused for forged, older and damaged ones."""
    with folder.opened(HANDLES) as descriptor, open(descriptor, "rb", closefd=False) as file:
        written = file.read(_MOST_BYTES + 1)
    content = written[_DIGEST:]
    ours = hmac.compare_digest(_digest(content, key), written[:_DIGEST])
    if len(written) > _MOST_BYTES or not ours:
        raise Refused("foreign_handles", "the handles were not written by this engine")
    try:
        found = msgspec.msgpack.decode(content, type=WeightHandles)
    except msgspec.MsgspecError as error:
        raise Refused("foreign_handles", f"the handles cannot be read: {error}") from error
    if found.format != _FORMAT or found.generation != generation:
        message = f"the handles are of generation {found.generation}, not {generation}"
        raise Refused("stale_handles", message)
    _check(found)
    return found


def _digest(content: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(content, key=key, digest_size=_DIGEST).digest()


def _check(found: WeightHandles) -> None:
    """Refuses handles that reach outside their file, into each other, or are no plain tensors."""
    end, names = 0, set()
    for one in sorted(found.handles, key=lambda handle: handle.offset):
        if one.dtype not in DTYPES or not one.shape or min(one.shape) < 1 or one.name in names:
            raise Refused("foreign_handles", f"{one.name} is no parameter that can be shared")
        names.add(one.name)
        strides = tuple(math.prod(one.shape[axis + 1 :]) for axis in range(len(one.shape)))
        # On a GPU offsets are into an allocation each.
        inside = found.device != "cpu" or end <= one.offset <= found.size - one.size
        rows = 1 <= one.rows <= one.shape[0]
        if one.strides != strides or one.offset % 4 or not inside or not rows:
            raise Refused("foreign_handles", f"{one.name} does not lie where its handle says")
        end = one.offset + one.size
