"""One replica of an engine, which Kueue admits by itself.

On one node it is a Deployment of one pod, on several a LeaderWorkerSet of one group
(https://lws.sigs.k8s.io).
"""

from collections.abc import Mapping

from windlass.kubernetes import labels
from windlass_agent.executors.kubernetes.render import parts
from windlass_agent.executors.kubernetes.render.engine_plan import EnginePlan, digest
from windlass_agent.executors.kubernetes.render.engine_pod import template
from windlass_agent.executors.kubernetes.render.parts import ClaimHolder, Object
from windlass_agent.kube.resources import DEPLOYMENTS, LEADERWORKERSETS, PODS


def render(plan: EnginePlan) -> list[Object]:
    """The objects of a replica, for server-side apply in this order; what has its pods is last."""
    metadata = {"name": plan.name, "namespace": plan.namespace, "labels": plan.labels}
    annotations = {
        labels.GENERATION: str(plan.workload.generation),
        labels.ENGINE_SPEC: digest(plan.workload),
    }
    marked = metadata | {"labels": plan.labels | plan.queue_labels, "annotations": annotations}
    body = replica(marked, plan.labels, template(plan)) if plan.nodes == 1 else _group(plan, marked)
    if plan.holder is not None:
        # Kubernetes deletes it with the pod whose devices it joins.
        body["metadata"]["ownerReferences"] = [_owner(plan.holder)]
        return [body]
    return [*parts.claim_template(metadata, plan.accelerator, plan.gpus), body]


def _owner(holder: ClaimHolder) -> Object:
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "name": holder.name,
        "uid": holder.uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }


def replica(metadata: Object, marks: Mapping[str, str], template: Object) -> Object:
    """A Deployment of one pod, which it finds by its `marks`."""
    selected = (labels.WORKLOAD, labels.CLUSTER, labels.KIND)
    return {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": DEPLOYMENTS.kind,
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            # The old pod leaves its quota and its devices first.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {name: marks[name] for name in selected}},
            "template": template,
        },
    }


def _group(plan: EnginePlan, metadata: Object) -> Object:
    return {
        "apiVersion": LEADERWORKERSETS.api_version,
        "kind": LEADERWORKERSETS.kind,
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": {
                "size": plan.nodes,
                # What is left of a group answers nothing.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": template(plan),
                "workerTemplate": template(plan, is_member=True),
            },
        },
    }
