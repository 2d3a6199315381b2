"""A TrainJob, for clusters whose operator wants training seen as Kubeflow Trainer's.

The pod is ours and stands in a TrainingRuntime of the attempt's own. A TrainJob's
`runtimePatches` would be the shorter way, but Kueue 0.16 knows Trainer 2.1's fields alone and
drops what it does not know (`activeDeadlineSeconds` too) when it admits. For the same reason
the node labels of a flavor do not reach a TrainJob's pods under Trainer 2.3.
"""

from windlass_agent.executors.kubernetes.render import jobset, pod
from windlass_agent.executors.kubernetes.render.attempt import AttemptSpec
from windlass_agent.executors.kubernetes.render.parts import Object

_API = "trainer.kubeflow.org"
_VERSION = f"{_API}/v1alpha1"


def render(attempt: AttemptSpec) -> list[Object]:
    """Renders the TrainingRuntime and the TrainJob."""
    labels = attempt.labels | {f"{_API}/framework": "torch"}
    runtime = {
        "apiVersion": _VERSION,
        "kind": "TrainingRuntime",
        "metadata": attempt.metadata() | {"labels": labels},
        "spec": {
            "mlPolicy": {"numNodes": attempt.nodes, "torch": {}},
            "template": {"spec": _jobset(attempt)},
        },
    }
    body = {
        "apiVersion": _VERSION,
        "kind": "TrainJob",
        "metadata": attempt.admitted_metadata(),
        "spec": attempt.suspension
        | {
            "runtimeRef": {"apiGroup": _API, "kind": "TrainingRuntime", "name": attempt.name},
            # Without it Trainer sets no variable for torchrun.
            "trainer": {"numNodes": attempt.nodes, "numProcPerNode": attempt.processes},
        },
    }
    return [*pod.claim_template(attempt), runtime, body]


def _jobset(attempt: AttemptSpec) -> Object:
    env = pod.world(attempt, jobset.master_host(attempt)) if attempt.nodes > 1 else []
    template = {
        "metadata": {"labels": {f"{_API}/trainjob-ancestor-step": "trainer"}},
        "spec": jobset.indexed(attempt, pod.template(attempt, env=env)),
    }
    return jobset.jobs(template)
