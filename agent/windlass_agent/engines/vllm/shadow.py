"""A copy of a model's files that is changed in place, for an engine that keeps its own layout."""

import shutil
import tempfile
from pathlib import Path

from windlass.weight_versions import TensorBytes, WeightsRefused
from windlass.weight_versions.safetensors import mapped_tensors, weight_files


class ShadowWeights:
    """The weights by their names in the model's files, as bytes of a copy in `folder`.

    An engine that fuses, packs or splits tensors as it loads them cannot take the difference of two
    versions; it reads what it became from here, as it read the model.
    """

    def __init__(self, model: Path, scratch: Path):
        """Copies the model's safetensors; raises WeightsRefused for what versions cannot hold."""
        self.folder = Path(tempfile.mkdtemp(prefix="weights-", dir=scratch))
        self.tensors: dict[str, TensorBytes] = {}
        try:
            for source in weight_files(model):
                copy = self.folder / source.name
                shutil.copyfile(source, copy)
                self.tensors |= mapped_tensors(copy, "r+")
            if not self.tensors:
                raise WeightsRefused("wrong_tensor", "The model has no safetensors.")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Removes the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)
