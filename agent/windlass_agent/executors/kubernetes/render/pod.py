"""The pod template of a job: the runner, confined, with only what it needs."""

from typing import Any

from windlass.kubernetes import names
from windlass.kubernetes.labels import COMPLETION_INDEX, PREFIX
from windlass.kubernetes.quantities import text_of
from windlass_agent.executors.kubernetes.overlay import CONTAINER, merge
from windlass_agent.executors.kubernetes.render.attempt import AttemptSpec, Object
from windlass_agent.kube.errors import Unrenderable

AUDIENCE = "windlass"
RENDEZVOUS_PORT = 29_500
_SECRETS = "/var/run/secrets/windlass"
_CA = PREFIX + "agent-ca"
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
    if not settings.agent_ca:
        raise Unrenderable("NoAgentCA", "The agent has no certificate for its runners yet.")
    spec: Object = {
        "restartPolicy": "Never",
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": settings.deadlines.drain,
        "securityContext": _pod_security(settings.run_as_user),
        "tolerations": _tolerations(attempt),
        "containers": [_container(attempt, env or [])],
        "volumes": _volumes(attempt),
    }
    if selector := _node_selector(attempt):
        spec["nodeSelector"] = selector
    if subdomain:
        spec["subdomain"] = subdomain
    if attempt.accelerator is not None:
        if attempt.accelerator.runtime_class:
            spec["runtimeClassName"] = attempt.accelerator.runtime_class
        if attempt.accelerator.device_class:
            claim = {"name": "accelerator", "resourceClaimTemplateName": attempt.name}
            spec["resourceClaims"] = [claim]
    made = {
        "metadata": {
            "labels": dict(attempt.labels),
            # The CA is public; a pod's own annotation brings it without a ConfigMap to make.
            "annotations": {_CA: settings.agent_ca},
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
    accelerator = attempt.accelerator
    if accelerator is None or not accelerator.device_class:
        return []
    exactly: Object = {
        "deviceClassName": accelerator.device_class,
        "allocationMode": "ExactCount",
        "count": attempt.gpus,
    }
    if accelerator.selector:
        exactly["selectors"] = [{"cel": {"expression": accelerator.selector}}]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": attempt.metadata(),
            "spec": {"spec": {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}},
        }
    ]


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
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "work", "mountPath": _WORKDIR},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            {"name": "windlass", "mountPath": _SECRETS, "readOnly": True},
        ],
    }
    if settings.image_pull_policy:
        container["imagePullPolicy"] = settings.image_pull_policy
    return container


def _command(attempt: AttemptSpec) -> list[str]:
    settings, accelerator = attempt.settings, attempt.accelerator
    command = [settings.python, "-m", "windlass_agent.runner"]
    command += ["--agent", settings.agent_address, "--agent-ca", f"{_SECRETS}/ca.crt"]
    command += ["--token-file", f"{_SECRETS}/token", "--workdir", _WORKDIR]
    command += ["--device", accelerator.device if accelerator else "cpu"]
    command += ["--exit-message", _MESSAGE]
    return [*command, "--grace", str(settings.deadlines.grace)]


def _environment(attempt: AttemptSpec) -> list[Object]:
    values = {"HOME": "/tmp", "TMPDIR": "/tmp", "USER": "windlass"}  # noqa: S108
    if attempt.accelerator is None:
        # Else NVIDIA's runtime shows every device to images that ask for `all`.
        values["NVIDIA_VISIBLE_DEVICES"] = "void"
    else:
        values |= attempt.accelerator.env
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
    found: Object = {}
    if (accelerator := attempt.accelerator) is not None:
        if accelerator.device_class:
            found["claims"] = [{"name": "accelerator"}]
        else:
            both[accelerator.resource] = str(attempt.gpus)
    return found | {"requests": requests | both, "limits": both}


def memory_bytes(attempt: AttemptSpec) -> int:
    """Memory of each pod, shared memory included."""
    return attempt.workload.resources.memory_bytes or attempt.settings.sizes.memory_bytes


def _volumes(attempt: AttemptSpec) -> list[Object]:
    sizes = attempt.settings.sizes
    shm = min(sizes.shm_bytes, memory_bytes(attempt) // 2)
    token = {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}
    authority = {
        "path": "ca.crt",
        "fieldRef": {"fieldPath": f"metadata.annotations['{_CA}']"},
    }
    sources = [{"serviceAccountToken": token}, {"downwardAPI": {"items": [authority]}}]
    return [
        {"name": "work", "emptyDir": {"sizeLimit": str(sizes.workdir_bytes)}},
        {"name": "tmp", "emptyDir": {"sizeLimit": str(sizes.tmp_bytes)}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(shm)}},
        {"name": "windlass", "projected": {"sources": sources}},
    ]


def _node_selector(attempt: AttemptSpec) -> dict[str, str]:
    of_device = attempt.accelerator.node_selector if attempt.accelerator else {}
    try:
        asked = names.node_selector(attempt.workload.placement.node_selector)
    except names.BadName as error:
        raise Unrenderable("BadName", str(error)) from error
    return of_device | asked


def _tolerations(attempt: AttemptSpec) -> list[Object]:
    seconds = attempt.settings.deadlines.unreachable
    found = [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }
        for condition in ("not-ready", "unreachable")
    ]
    theirs = attempt.accelerator.tolerations if attempt.accelerator else ()
    return found + [
        {name: value for name, value in toleration.model_dump().items() if value}
        for toleration in theirs
    ]


def _pod_security(user: int | None) -> Object:
    found: dict[str, Any] = {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if user is not None:
        found |= {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
        found["fsGroupChangePolicy"] = "OnRootMismatch"
    return found
