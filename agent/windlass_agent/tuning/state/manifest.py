"""The manifest of a saved state: what it is of, and the digest of each file."""

from pathlib import Path

import msgspec

from windlass_agent.tuning.requests.operations import AdapterSpec, OptimizerKind, Target
from windlass_agent.tuning.requests.refusal import TuningRefused
from windlass_agent.tuning.state.folders import digest

NAME = "manifest.json"
FORMAT = 1
_LONGEST = 64 * 1024


class SavedFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file of a state."""

    size: int
    sha256: str


class StateManifest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The words of a state; written after all its files."""

    format: int
    base: str
    rank: int
    alpha: float
    seed: int
    targets: list[Target]
    optimizer: OptimizerKind
    step: int
    files: dict[str, SavedFile]

    @property
    def adapter(self) -> AdapterSpec:
        """The adapter that the state is of."""
        return AdapterSpec(
            rank=self.rank, alpha=self.alpha, seed=self.seed, targets=frozenset(self.targets)
        )


def describe(folder: Path) -> dict[str, SavedFile]:
    """Sizes and digests of the files that lie in a folder."""
    return {
        path.name: SavedFile(path.stat().st_size, digest(path)) for path in sorted(folder.iterdir())
    }


def write_manifest(folder: Path, manifest: StateManifest) -> str:
    """Writes it; returns its digest."""
    (folder / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    return digest(folder / NAME)


def read_manifest(folder: Path, files: set[str]) -> StateManifest:
    """Reads it and compares every file; raises TuningRefused for what is not as it was saved."""
    try:
        with (folder / NAME).open("rb") as file:
            manifest = msgspec.json.decode(file.read(_LONGEST), type=StateManifest)
    except FileNotFoundError:
        raise TuningRefused("state_not_found", "there is no such state") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise TuningRefused("damaged_state", f"the manifest cannot be read: {error}") from error
    if manifest.format != FORMAT or set(manifest.files) != files:
        raise TuningRefused("damaged_state", "the manifest is of another form")
    for name, saved in manifest.files.items():
        path = folder / name
        if path.is_symlink() or not path.is_file() or path.stat().st_size != saved.size:
            raise TuningRefused("damaged_state", f"{name} is missing or has another size")
        if digest(path) != saved.sha256:
            raise TuningRefused("damaged_state", f"{name} is not what was saved")
    return manifest
