"""Facts that the headers of a model's weights tell."""

from collections import Counter
from dataclasses import dataclass, field

_FLOATS = {"F32": 4, "BF16": 2, "F16": 2}


@dataclass(slots=True)
class TensorFacts:
    """Facts of the headers of a model's files: bytes by type of tensor, and whether some are packed
    integers, which only the code of a quantization can read.
    """

    sizes: Counter[str] = field(default_factory=Counter)
    is_packed: bool = False
    is_gguf: bool = False

    def add(self, other: "TensorFacts") -> None:
        """Takes in those of one more file."""
        self.sizes += other.sizes
        self.is_packed |= other.is_packed
        self.is_gguf |= other.is_gguf

    @property
    def common(self) -> str:
        """The type that most bytes are of; empty where there are none."""
        found = self.sizes.most_common(1)
        return found[0][0] if found else ""

    @property
    def width(self) -> int:
        """Bytes of most weights; 0 where they are no floats of 16 or 32 bits."""
        return _FLOATS.get(self.common, 0)
