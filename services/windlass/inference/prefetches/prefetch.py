"""A prefetch, and when it is over; pure."""

from dataclasses import dataclass

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb

OPEN, READY, FAILED = "open", "ready", "failed"
# Unfinished ones of a project.
MAX_OPEN = 20
# A cluster that does not bring the files within this time does not.
LONGEST_SECONDS = 24 * 3600.0
MESSAGE_LENGTH = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetch:
    """The wish that a cluster has a version's files, and what became of it.

    `owner_id` is the project that the model belongs to, empty for one of all projects.
    """

    id: str
    organization_id: str
    project_id: str
    owner_id: str
    model: str
    version_id: str
    cluster_id: str
    bytes: int
    # Of the model that guesses for its engines, whose files come too; empty for none.
    draft_version_id: str = ""
    state: str = OPEN
    error: str = ""
    # Of the workload: what the cluster should know, and what it knows.
    generation: int = 1
    put_generation: int = 0
    created_at: float = 0.0
    urls_at: float = 0.0
    finished_at: float = 0.0

    @property
    def is_open(self) -> bool:
        """True until the files are there, or cannot be brought."""
        return self.state == OPEN


def ended(
    prefetch: Prefetch,
    status: clusters_pb2.WorkloadStatus | None,
    now: float,
    *,
    is_permitted: bool,
) -> tuple[str, str] | None:
    """The state in which an open prefetch is over, and why it failed; None while it goes on.

    `is_permitted` says whether the cluster may still have the model.
    """
    if status is not None and status.generation == prefetch.generation:
        if status.phase == clusters_pb2.PHASE_SUCCEEDED:
            return READY, ""
        if status.phase in (clusters_pb2.PHASE_FAILED, clusters_pb2.PHASE_STOPPED):
            return FAILED, status.message[:MESSAGE_LENGTH] or "The cluster ended it."
    if not is_permitted:
        return FAILED, "The cluster runs engines of the model's project no more."
    if now - prefetch.created_at > LONGEST_SECONDS:
        said = f": {status.message[:MESSAGE_LENGTH]}" if status and status.message else "."
        return FAILED, f"The cluster did not bring the files within a day{said}"
    return None


def shown(prefetch: Prefetch, status: clusters_pb2.WorkloadStatus | None) -> pb.Prefetch:
    """A prefetch as its project sees it."""
    state, message = pb.PREFETCH_STATE_WAITING, prefetch.error
    if prefetch.state == READY:
        state = pb.PREFETCH_STATE_READY
    elif prefetch.state == FAILED:
        state = pb.PREFETCH_STATE_FAILED
    elif status is not None:
        message = status.message[:MESSAGE_LENGTH]
        if status.phase in (clusters_pb2.PHASE_STARTING, clusters_pb2.PHASE_RUNNING):
            state = pb.PREFETCH_STATE_RUNNING
    return pb.Prefetch(
        id=prefetch.id,
        model=prefetch.model,
        cluster_id=prefetch.cluster_id,
        state=state,
        message=message,
        bytes=prefetch.bytes,
        created_at=int(prefetch.created_at),
        finished_at=int(prefetch.finished_at),
    )
