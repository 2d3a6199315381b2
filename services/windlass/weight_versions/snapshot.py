"""The bytes of the version that was published last, which the next delta is against."""

import os
import tempfile
from pathlib import Path

import numpy as np

from windlass.weight_versions.tensors import Octets, TensorBytes, Weights, chunks


class WeightSnapshot:
    """All tensors in a file without a name, so that they take no memory and leave nothing."""

    def __init__(self, folder: Path, weights: Weights):
        """Makes room for such tensors in `folder`."""
        self._offsets: dict[str, int] = {}
        end = 0
        for name in sorted(weights):
            self._offsets[name] = end
            end += weights[name].nbytes
        self._facts = {name: (one.dtype, one.shape) for name, one in weights.items()}
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        os.truncate(self._file.fileno(), end)
        self.size = end
        """Bytes of all tensors."""

    def fits(self, weights: Weights) -> bool:
        """Returns True for tensors of the same names, types and shapes."""
        return self._facts == {name: (one.dtype, one.shape) for name, one in weights.items()}

    def holds(self, name: str, tensor: TensorBytes) -> bool:
        """Returns True if a tensor has not changed."""
        return all(
            np.array_equal(self.read(name, start, content.nbytes), content)
            for start, content in chunks(tensor)
        )

    def read(self, name: str, start: int, size: int) -> Octets:
        """Bytes of a tensor."""
        content = os.pread(self._file.fileno(), size, self._offsets[name] + start)
        return np.frombuffer(content, np.uint8)

    def write(self, name: str, start: int, content: Octets) -> None:
        """Replaces bytes of a tensor."""
        view, place = content.data, self._offsets[name] + start
        while view:
            written = os.pwrite(self._file.fileno(), view, place)
            view, place = view[written:], place + written

    def close(self) -> None:
        """Frees the file."""
        self._file.close()
