"""Several nodes: a JobSet of one Indexed Job."""

from windlass_agent.executors.kubernetes.render import job, pod
from windlass_agent.executors.kubernetes.render.attempt import AttemptSpec
from windlass_agent.executors.kubernetes.render.parts import Object

# Kueue and Kubeflow Trainer name a pod set by it.
REPLICATED_JOB = "node"


def render(attempt: AttemptSpec) -> list[Object]:
    """Renders the JobSet of an attempt; JobSet gives its pods host names."""
    master = master_host(attempt)
    env = [*pod.torchrun(attempt, master), *pod.world(attempt, master)]
    template = {"spec": indexed(attempt, pod.template(attempt, env=env))}
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": attempt.admitted_metadata(),
        "spec": attempt.suspension
        | jobs(template)
        | {"ttlSecondsAfterFinished": attempt.settings.deadlines.ttl},
    }
    return [*pod.claim_template(attempt), body]


def jobs(template: Object) -> Object:
    """The policy of a JobSet for its one Job; a failure of it is the end of the attempt."""
    return {
        "failurePolicy": {"maxRestarts": 0},
        # Ranks look for the first one before any of them is ready.
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "replicatedJobs": [{"name": REPLICATED_JOB, "replicas": 1, "template": template}],
    }


def indexed(attempt: AttemptSpec, template: Object) -> Object:
    """Spec of the Job in it."""
    return job.spec(attempt, template) | {"completionMode": "Indexed"}


def master_host(attempt: AttemptSpec) -> str:
    """The address of the first pod."""
    return f"{attempt.name}-{REPLICATED_JOB}-0-0.{attempt.name}"
