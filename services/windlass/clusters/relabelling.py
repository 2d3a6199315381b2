"""Consequences of another geography of a cluster: projects that may not be there leave it."""

from contextlib import suppress

from windlass.clusters.domain import records
from windlass.clusters.storage.stores import Stores
from windlass.core import telemetry
from windlass.core.db.wake import Wake
from windlass.core.errors import NotFound
from windlass.residency.geographies import ProjectGeographies
from windlass.residency.rule import admits

log = telemetry.logger("clusters")


class Relabelling:
    """Ends assignments and workloads in clusters whose label was changed; idempotent."""

    def __init__(self, stores: Stores, geographies: ProjectGeographies, wake: Wake):
        self._stores = stores
        self._geographies = geographies
        self._wake = wake

    async def once(self) -> bool:
        """Looks at every cluster that got another label; returns False, as there is no more."""
        for cluster_id, label in await self._stores.evictions.relabelled():
            await self._settle(cluster_id, label)
        return False

    async def _settle(self, cluster_id: str, label: str) -> None:
        evictions, leaving = self._stores.evictions, set[str]()
        for project_id in await evictions.projects(cluster_id):
            if not admits(label, await self._geographies.of(project_id)):
                leaving.add(project_id)
        for project_id in sorted(leaving):
            # One that only uses a shared machine has none.
            with suppress(NotFound):
                await self._stores.assignments.delete(cluster_id, project_id)
        owners = await evictions.evict(cluster_id, label, leaving)
        if leaving:
            log.info("projects_left_cluster", cluster=cluster_id, projects=sorted(leaving))
        for topic in (records.cluster_topic(cluster_id), records.WAKE_DRAINING):
            self._wake.touch(topic)
        for owner in owners:
            self._wake.touch(records.status_topic(owner))
