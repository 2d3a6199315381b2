"""The port of media, by which versions come from a publisher to whoever serves them."""

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Protocol

from windlass.weight_versions.manifest import WeightManifest


class VersionMedium(Protocol):
    """Published versions, none of which ever changes; each is there whole or not at all."""

    def staged(self) -> AbstractContextManager[Path]:
        """A new folder to write a version into; what is not published goes with it."""

    async def publish(self, staged: Path, version: int) -> None:
        """Makes a staged version readable; raises WeightsRefused `version_exists`."""

    async def manifest(self, version: int) -> WeightManifest:
        """Reads and checks a manifest; raises WeightsRefused, `unknown_version` for none."""

    def fetch(self, version: int) -> AbstractAsyncContextManager[Path]:
        """A folder with the version's files that nobody changes meanwhile.

        Raises WeightsRefused for content that is not of its announced size or SHA-256.
        """

    async def remove(self, version: int) -> None:
        """Removes a version, if it is there."""

    async def close(self) -> None:
        """Frees what the medium holds; a shared one stays for its readers."""
