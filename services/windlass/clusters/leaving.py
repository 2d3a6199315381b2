"""Claims of the tables of clusters, and the end of what a project has in clusters."""

from windlass.clusters.domain.records import WAKE_DRAINING
from windlass.clusters.storage import tables
from windlass.clusters.storage.assignments import AssignmentStore
from windlass.core.db.wake import Wake
from windlass.core.errors import NotFound
from windlass.core.leaving.claims import LeavingClaims, Scope, erased, nobodys

_OPERATORS = "the operator's"
CLAIMS = LeavingClaims(
    "clusters",
    (
        erased(tables.assignments),
        nobodys(tables.workloads, "they go with the jobs and engines that they are of"),
        nobodys(tables.clusters, _OPERATORS),
        nobodys(tables.credentials, _OPERATORS),
        nobodys(tables.registration_keys, _OPERATORS),
        nobodys(tables.issuers, "what an agent says of its cluster's issuer"),
        nobodys(tables.quotas, _OPERATORS),
        nobodys(tables.counters, "revisions"),
        nobodys(tables.inventory, "what an agent sees in its cluster"),
        nobodys(tables.observations, "what an agent sees in its cluster"),
    ),
)


class AssignmentsEnd:
    """Ends the assignments of a scope, so that agents remove namespaces, roles and queues."""

    def __init__(self, assignments: AssignmentStore, wake: Wake):
        self._assignments = assignments
        self._wake = wake

    async def __call__(self, scope: Scope) -> str:
        """Returns what the erasure waits for."""
        found = await self._assignments.all(organization_id=scope.organization_id)
        for one in found:
            if one.project_id not in scope.project_ids or one.removing:
                continue
            try:
                await self._assignments.delete(one.cluster_id, one.project_id)
            except NotFound:
                continue
            self._wake.touch(WAKE_DRAINING)
            self._wake.touch("clusters")
        left = await self._assignments.all(organization_id=scope.organization_id)
        names = sorted({one.cluster_id for one in left if one.project_id in scope.project_ids})
        return f"agents, which are removing namespaces: {', '.join(names)}" if names else ""
