"""Weight versions: what a model's weights are after each update, in full or as a delta.

A version is a folder: `weights.bin`, and the manifest that is written last. A publisher writes it
to a medium, and whoever holds the version before puts it in place (docs/adr/0086).

May import nothing else of Windlass, neither torch nor transformers: services, the agent and the
process of another engine use it alike.
"""

from windlass.weight_versions.applying import CheckedChain
from windlass.weight_versions.manifest import BASE, WeightManifest
from windlass.weight_versions.media.folder import FolderMedium
from windlass.weight_versions.media.port import VersionMedium
from windlass.weight_versions.media.shared_memory import SharedMemory
from windlass.weight_versions.publisher import VersionPublisher
from windlass.weight_versions.reader import HeldVersion, checked_chain
from windlass.weight_versions.refusals import WeightsRefused, WeightsTorn
from windlass.weight_versions.tensors import ArrayBytes, TensorBytes, Weights, digest_of

__all__ = [
    "BASE",
    "ArrayBytes",
    "CheckedChain",
    "FolderMedium",
    "HeldVersion",
    "SharedMemory",
    "TensorBytes",
    "VersionMedium",
    "VersionPublisher",
    "WeightManifest",
    "Weights",
    "WeightsRefused",
    "WeightsTorn",
    "checked_chain",
    "digest_of",
]
