"""Background work of models: removing what has no name any more."""

from windlass.core.objects import ObjectStore
from windlass.models.imports import ImportStore, RemovalStore
from windlass.models.service import Uses


class ModelsScheduler:
    """Removes the artifacts of deleted models and of imports that nobody finished."""

    def __init__(
        self, objects: ObjectStore, imports: ImportStore, removals: RemovalStore, uses: Uses
    ):
        self._objects = objects
        self._imports = imports
        self._removals = removals
        self._uses = uses

    async def sweep(self) -> bool:
        """Removes a batch of each; returns True if there may be more."""
        return bool(await self._remove_versions()) | bool(await self._remove_imports())

    async def _remove_versions(self) -> int:
        token, versions = await self._removals.claim()
        for version in versions:
            # A job may have begun between the check of a deletion and the deletion.
            if await self._uses.of(version, ""):
                continue
            if await self._removals.begin(version, token):
                await self._objects.delete_prefix(version.object_prefix)
                await self._removals.finish(version, token)
        return len(versions)

    async def _remove_imports(self) -> int:
        token, imports = await self._imports.claim_expired()
        for import_ in imports:
            await self._objects.delete_prefix(import_.object_prefix)
            await self._imports.forget(import_, token)
        return len(imports)
