"""Choice of the Kubernetes objects for a workload, and their order."""

from collections.abc import Collection

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.render import job, jobset, trainjob
from windlass_agent.executors.kubernetes.render.attempt import AttemptSpec
from windlass_agent.executors.kubernetes.render.parts import Object
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.kube.errors import Unrenderable

__all__ = ["Object", "Unrenderable", "owned", "render"]


def render(
    workload: pb.Workload, settings: ClusterSettings, *, covered: Collection[str] | None = None
) -> list[Object]:
    """The objects of a workload's present attempt, for server-side apply in this order.

    The last is the one that Kueue admits and that the attempt stands or falls with; it is
    created suspended where there is a queue. Give the ones before it `owned` by it, and they
    go with it. Nothing of it changes while an attempt lives: apply it without force, where a
    Conflict says that it exists and that Kueue has taken `suspend` over.
    `covered` are the resources that the ClusterQueue behind the job's queue holds quota for;
    they decide which accelerator it gets, and whether it may ask for ephemeral storage.
    Raises Unrenderable with a sentence for the job's owner.
    """
    if not workload.HasField("job"):
        raise Unrenderable("UnsupportedWorkload", "This cluster runs only jobs.")
    attempt = AttemptSpec.of(workload, settings, covered)
    if settings.trainjob:
        return trainjob.render(attempt)
    if attempt.nodes == 1:
        return job.render(attempt)
    if settings.several_nodes == "indexed":
        return job.render_indexed(attempt)
    return jobset.render(attempt)


def owned(item: Object, owner: Object) -> Object:
    """Returns `item` with an owner reference to `owner`, so that both are deleted together."""
    metadata = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": False,
        "blockOwnerDeletion": False,
    }
    return item | {"metadata": item["metadata"] | {"ownerReferences": [reference]}}
