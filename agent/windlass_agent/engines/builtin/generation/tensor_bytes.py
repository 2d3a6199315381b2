"""The memory of a network's parameters, as weight versions read and change it."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from windlass.weight_versions import ArrayBytes, TensorBytes
from windlass.weight_versions.tensors import Octets

# By safetensors' names.
_NAMES = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int8: "I8",
    torch.uint8: "U8",
}


@dataclass(frozen=True)
class DeviceBytes:
    """The memory of a tensor on a device, copied in chunks."""

    octets: torch.Tensor
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that it has."""
        return int(self.octets.nbytes)

    def read(self, start: int, stop: int) -> Octets:
        """A copy of its bytes from `start` to before `stop`."""
        content: Octets = self.octets[start:stop].cpu().numpy()
        return content

    def write(self, start: int, content: Octets) -> None:
        """Replaces bytes from `start` on."""
        self.octets[start : start + content.nbytes].copy_(_tensor(content))

    def xor(self, start: int, difference: Octets) -> None:
        """Changes the bits that are set in `difference`, from byte `start` on."""
        part = self.octets[start : start + difference.nbytes]
        part.bitwise_xor_(_tensor(difference).to(part.device))


def tensor_bytes(parameters: Mapping[str, torch.Tensor]) -> dict[str, TensorBytes]:
    """The memory of each parameter; it keeps that memory for as long as it is held.

    Raises ValueError for a type of elements, or a layout, that versions do not have.
    """
    return {name: _bytes_of(name, one.detach()) for name, one in parameters.items()}


def _bytes_of(name: str, tensor: torch.Tensor) -> TensorBytes:
    dtype = _NAMES.get(tensor.dtype)
    if dtype is None or not tensor.is_contiguous():
        raise ValueError(f"{name} is {tensor.dtype} in strides of {tensor.stride()}")
    octets, shape = tensor.reshape(-1).view(torch.uint8), tuple(tensor.shape)
    if tensor.device.type == "cpu":
        return ArrayBytes(octets.numpy(), dtype, shape)
    return DeviceBytes(octets, dtype, shape)


def _tensor(content: Octets) -> torch.Tensor:
    # torch warns of arrays that cannot be written, which it only reads here.
    return torch.frombuffer(bytearray(content.data), dtype=torch.uint8)
