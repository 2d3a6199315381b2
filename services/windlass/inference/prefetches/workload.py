"""A prefetch as a workload, with fresh URLs of its files."""

from windlass.api.clusters.v1 import clusters_pb2
from windlass.core.errors import NotFound
from windlass.inference.domain import View
from windlass.inference.observed_state import OWNER
from windlass.inference.prefetches.prefetch import Prefetch
from windlass.inference.workloads import Workloads, place


async def make_workload(
    prefetch: Prefetch, view: View, workloads: Workloads
) -> clusters_pb2.Workload:
    """The workload of a prefetch's present generation; raises NotFound for a version that is gone.

    One that is over is to be forgotten.
    """
    made = clusters_pb2.Workload(
        id=prefetch.id,
        kind=clusters_pb2.WORKLOAD_KIND_FILES,
        owner=OWNER,
        organization_id=prefetch.organization_id,
        project_id=prefetch.owner_id,
        cluster_id=prefetch.cluster_id,
        generation=prefetch.generation,
        desired=clusters_pb2.DESIRED_STATE_DELETED,
    )
    place(made, view, prefetch.owner_id)
    if not prefetch.is_open:
        return made
    found = await workloads.resolve(prefetch.project_id, prefetch.model)
    if found.model.version_id != prefetch.version_id:
        raise NotFound(f"{prefetch.model} is another version now.", reason="model_not_found")
    made.desired = clusters_pb2.DESIRED_STATE_RUNNING
    made.prefetch.CopyFrom(
        clusters_pb2.PrefetchWorkload(
            model=prefetch.model,
            model_version_id=prefetch.version_id,
            files=await workloads.files(found),
            draft_version_id=prefetch.draft_version_id,
            draft_files=await workloads.draft_files(prefetch.draft_version_id),
        )
    )
    return made
