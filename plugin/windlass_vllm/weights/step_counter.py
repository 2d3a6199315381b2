"""Steps that began and that ended, in a file that the API server and the training worker map."""

import mmap
import os
import struct

from windlass_vllm.weights.private_folder import PrivateFolder

_NAME = "steps"
_COUNTS = struct.Struct("=qq")


class StepCounter:
    """Counts of all optimizer steps of an engine's run.

    The worker writes, the API server reads: what an answer saw lies from the steps that had ended
    when it was asked for, up to those that had begun when it was whole.
    """

    def __init__(self, folder: PrivateFolder, *, new: bool = False) -> None:
        with folder.opened(_NAME, new=new) as descriptor:
            if new:
                os.posix_fallocate(descriptor, 0, _COUNTS.size)
            self._counts = mmap.mmap(descriptor, _COUNTS.size)

    @property
    def begun(self) -> int:
        """Steps that have begun to change weights."""
        return self._read()[0]

    @property
    def ended(self) -> int:
        """Steps whose weights are all in place."""
        return self._read()[1]

    def begin(self, steps: int = 1) -> None:
        """Counts steps that are about to change weights, all of them at once."""
        _COUNTS.pack_into(self._counts, 0, self.begun + steps, self.ended)

    def end(self) -> None:
        """Counts the step that began last; one that broke off before it counts with it."""
        _COUNTS.pack_into(self._counts, 0, self.begun, self.begun)

    def start(self, steps: int) -> None:
        """Goes on from the steps of an engine that ended."""
        _COUNTS.pack_into(self._counts, 0, steps, steps)

    def _read(self) -> tuple[int, int]:
        begun, ended = _COUNTS.unpack_from(self._counts, 0)
        return int(begun), int(ended)
