"""One node: a Job. Several, where JobSet is not installed: an Indexed Job and a Service."""

from windlass.kubernetes.labels import ATTEMPT, WORKLOAD
from windlass_agent.executors.kubernetes.render import pod
from windlass_agent.executors.kubernetes.render.attempt import AttemptSpec
from windlass_agent.executors.kubernetes.render.parts import Object


def render(attempt: AttemptSpec) -> list[Object]:
    """Renders the Job of an attempt with one pod."""
    template = pod.template(attempt, env=pod.torchrun(attempt))
    return [*pod.claim_template(attempt), _job(attempt, spec(attempt, template))]


def render_indexed(attempt: AttemptSpec) -> list[Object]:
    """Renders an Indexed Job and the Service by which its pods find the first one."""
    master = f"{attempt.name}-0.{attempt.name}"
    env = [*pod.torchrun(attempt, master), *pod.world(attempt, master)]
    template = pod.template(attempt, env=env, subdomain=attempt.name)
    indexed = spec(attempt, template) | {"completionMode": "Indexed"}
    return [*pod.claim_template(attempt), _service(attempt), _job(attempt, indexed)]


def spec(attempt: AttemptSpec, template: Object) -> Object:
    """Spec of a Job that fails with its first failed pod; a retry is a new attempt.

    A pod that is being deleted counts as failed: that of a lost node never says more.
    """
    return {
        "parallelism": attempt.nodes,
        "completions": attempt.nodes,
        "backoffLimit": 0,
        "podReplacementPolicy": "TerminatingOrFailed",
        "activeDeadlineSeconds": attempt.settings.deadlines.active,
        "template": template,
    }


def _job(attempt: AttemptSpec, job_spec: Object) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": attempt.admitted_metadata(),
        "spec": attempt.suspension
        | job_spec
        | {"ttlSecondsAfterFinished": attempt.settings.deadlines.ttl},
    }


def _service(attempt: AttemptSpec) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": attempt.metadata(),
        "spec": {
            "clusterIP": "None",
            # Ranks look for the first one before any of them is ready.
            "publishNotReadyAddresses": True,
            "selector": {name: attempt.labels[name] for name in (WORKLOAD, ATTEMPT)},
            "ports": [{"name": "rendezvous", "port": pod.RENDEZVOUS_PORT}],
        },
    }
