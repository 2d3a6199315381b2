"""Finds the versions that lead from what is held to what is wanted, and checks them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from windlass.weight_versions.applying import CheckedChain
from windlass.weight_versions.content import VersionContent
from windlass.weight_versions.manifest import WeightManifest
from windlass.weight_versions.media.port import VersionMedium
from windlass.weight_versions.refusals import WeightsRefused
from windlass.weight_versions.tensors import Weights

LONGEST_CHAIN = 100


@dataclass(frozen=True)
class HeldVersion:
    """A version that weights are of, its digest, and that of the model as it was loaded."""

    version: int
    weights: str
    base_weights: str


@asynccontextmanager
async def checked_chain(
    medium: VersionMedium, version: int, held: HeldVersion, weights: Weights, scratch: Path
) -> AsyncIterator[tuple[CheckedChain, HeldVersion]]:
    """The checked way to a version, and what is held once it was applied; raises WeightsRefused.

    The weights are not read for it, and may be in use.
    """
    manifests = await _chain(medium, version, held)
    async with AsyncExitStack() as stack:
        steps = []
        for manifest in manifests:
            folder = await stack.enter_async_context(medium.fetch(manifest.version))
            steps.append(stack.enter_context(VersionContent(folder, manifest)))
        chain = CheckedChain(steps, weights, scratch)
        await asyncio.to_thread(chain.check)
        last = manifests[-1].weights if manifests else held.weights
        yield chain, HeldVersion(version, last, held.base_weights)


async def _chain(medium: VersionMedium, version: int, held: HeldVersion) -> list[WeightManifest]:
    """The manifests to put in place, the first one first."""
    found: list[WeightManifest] = []
    wanted: str | None = None
    at = version
    while (at, wanted or held.weights) != (held.version, held.weights):
        if len(found) == LONGEST_CHAIN:
            raise _wrong_parent(version, f"more than {LONGEST_CHAIN} versions lead to it")
        if at == 0 and wanted is not None:
            raise _wrong_parent(version, "it begins with the model as it was loaded")
        manifest = await medium.manifest(at)
        if manifest.base_weights != held.base_weights:
            raise WeightsRefused("wrong_base", f"Version {at} is of another base model.")
        if wanted not in (None, manifest.weights):
            raise _wrong_parent(version, f"version {at} is not the one that was built on")
        found.insert(0, manifest)
        if manifest.parent is None:
            break
        at, wanted = manifest.parent, manifest.parent_weights
    return found


def _wrong_parent(version: int, why: str) -> WeightsRefused:
    return WeightsRefused("wrong_parent", f"Version {version} cannot be put in place: {why}.")
