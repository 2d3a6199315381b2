"""The pod template of a job: the runner, confined, with only what it needs."""

from windlass.kubernetes.labels import COMPLETION_INDEX
from windlass.kubernetes.quantities import text_of
from windlass_agent.executors.kubernetes.overlay import CONTAINER, merge
from windlass_agent.executors.kubernetes.render import parts
from windlass_agent.executors.kubernetes.render.attempt import AttemptSpec
from windlass_agent.executors.kubernetes.render.parts import Object

RENDEZVOUS_PORT = 29_500
_WORKDIR = "/work"
# Kubernetes' own default.
_MESSAGE = "/dev/termination-log"
# Logs and what a container writes beside its volumes.
_SPARE_BYTES = 1024**3
_RANK = f"metadata.annotations['{COMPLETION_INDEX}']"


def template(
    attempt: AttemptSpec, *, env: list[Object] | None = None, subdomain: str = ""
) -> Object:
    """A pod template; `env` is added to the container's, `subdomain` gives pods host names."""
    settings = attempt.settings
    authority = parts.require_authority(settings)
    spec = parts.pod_spec(settings, attempt.accelerator, attempt.name) | {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": settings.deadlines.drain,
        "containers": [_container(attempt, env or [])],
        "volumes": _volumes(attempt),
    }
    asked = attempt.workload.placement.node_selector
    if selector := parts.node_selector(asked, attempt.accelerator):
        spec["nodeSelector"] = selector
    if subdomain:
        spec["subdomain"] = subdomain
    made = {
        "metadata": {
            "labels": dict(attempt.labels),
            # The CA is public; a pod's own annotation brings it without a ConfigMap to make.
            "annotations": {parts.CA_ANNOTATION: authority},
        },
        "spec": spec,
    }
    return merge(made, settings.overlay)


def world(attempt: AttemptSpec, master: str) -> list[Object]:
    """The variables that PyTorch's launchers read on each of several nodes."""
    port = str(RENDEZVOUS_PORT)
    rank = {"valueFrom": {"fieldRef": {"fieldPath": _RANK}}}
    return [
        {"name": "MASTER_ADDR", "value": master},
        {"name": "MASTER_PORT", "value": port},
        {"name": "WORLD_SIZE", "value": str(attempt.nodes)},
        {"name": "RANK", **rank},
    ]


def torchrun(attempt: AttemptSpec, master: str = "") -> list[Object]:
    """torchrun's own variables, which Kubeflow Trainer sets by itself."""
    found: list[Object] = [
        {"name": "PET_NNODES", "value": str(attempt.nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": str(attempt.processes)},
    ]
    if master:
        found += [
            {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _RANK}}},
            {"name": "PET_MASTER_ADDR", "value": master},
            {"name": "PET_MASTER_PORT", "value": str(RENDEZVOUS_PORT)},
        ]
    return found


def claim_template(attempt: AttemptSpec) -> list[Object]:
    """The ResourceClaimTemplate of claimed accelerators; empty for others."""
    return parts.claim_template(attempt.metadata(), attempt.accelerator, attempt.gpus)


def _container(attempt: AttemptSpec, env: list[Object]) -> Object:
    settings, accelerator = attempt.settings, attempt.accelerator
    # An accelerator may name a variable that we set as well; Kubernetes takes a name once.
    variables = {one["name"]: one for one in [*_environment(attempt), *env]}
    container: Object = {
        "name": CONTAINER,
        "image": (accelerator.image if accelerator else "") or settings.image,
        "command": _command(attempt),
        "env": list(variables.values()),
        "resources": _resources(attempt),
        "securityContext": dict(parts.CONTAINER_SECURITY),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "work", "mountPath": _WORKDIR},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            {"name": parts.SECRETS_VOLUME, "mountPath": parts.SECRETS, "readOnly": True},
        ],
    }
    if settings.image_pull_policy:
        container["imagePullPolicy"] = settings.image_pull_policy
    return container


def _command(attempt: AttemptSpec) -> list[str]:
    settings, accelerator = attempt.settings, attempt.accelerator
    command = [settings.python, "-m", "windlass_agent.runner"]
    command += ["--agent", settings.agent_address, "--agent-ca", f"{parts.SECRETS}/ca.crt"]
    command += ["--token-file", f"{parts.SECRETS}/token", "--workdir", _WORKDIR]
    command += ["--device", accelerator.device if accelerator else "cpu"]
    command += ["--exit-message", _MESSAGE]
    return [*command, "--grace", str(settings.deadlines.grace)]


def _environment(attempt: AttemptSpec) -> list[Object]:
    values = parts.variables(attempt.accelerator)
    return [{"name": name, "value": value} for name, value in values.items()]


def _resources(attempt: AttemptSpec) -> Object:
    asked, sizes = attempt.workload.resources, attempt.settings.sizes
    # A limit on processor time would throttle what nobody else uses.
    requests = {"cpu": text_of("cpu", round(1000 * (asked.cpus or sizes.cpus)))}
    both = {"memory": str(memory_bytes(attempt))}
    if attempt.covered is None or "ephemeral-storage" in attempt.covered:
        # Kueue never admits what asks for a resource that its queue does not cover; the
        # volumes' own limits hold in any case.
        both["ephemeral-storage"] = str(sizes.workdir_bytes + sizes.tmp_bytes + _SPARE_BYTES)
    claims, counted = parts.devices(attempt.accelerator, attempt.gpus)
    both |= counted
    return claims | {"requests": requests | both, "limits": both}


def memory_bytes(attempt: AttemptSpec) -> int:
    """Memory of each pod, shared memory included."""
    return attempt.workload.resources.memory_bytes or attempt.settings.sizes.memory_bytes


def _volumes(attempt: AttemptSpec) -> list[Object]:
    sizes = attempt.settings.sizes
    shm = min(sizes.shm_bytes, memory_bytes(attempt) // 2)
    return [
        {"name": "work", "emptyDir": {"sizeLimit": str(sizes.workdir_bytes)}},
        {"name": "tmp", "emptyDir": {"sizeLimit": str(sizes.tmp_bytes)}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(shm)}},
        parts.identity_volume(),
    ]
