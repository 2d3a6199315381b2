"""Parts of a pod that jobs and engines share: who it is, where it may go, what it claims."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from windlass.kubernetes import names
from windlass.kubernetes.labels import PREFIX
from windlass_agent.executors.kubernetes.settings import CLAIM, Accelerator, ClusterSettings
from windlass_agent.kube.errors import Unrenderable

Object = dict[str, Any]
AUDIENCE = "windlass"
# Where a container finds its token and the agent's CA.
SECRETS = "/var/run/secrets/windlass"
SECRETS_VOLUME = "windlass"
CA_ANNOTATION = PREFIX + "agent-ca"
CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def accelerator(
    settings: ClusterSettings,
    gpus: int,
    queue: str,
    covered: Collection[str] | None,
    resource: str = "",
) -> Accelerator | None:
    """The accelerator of a queue's pods: by its name, else the first that it holds quota for.

    Of a `resource` or class alone where one is asked for. None without GPUs; raises Unrenderable
    where none fits.
    """
    if not gpus:
        return None
    asked = [
        one for one in settings.accelerators if resource in ("", one.resource or one.device_class)
    ]
    for one in asked:
        if queue and queue in one.queues:
            return one
    for one in asked:
        if not one.queues and (covered is None or one.counted_as in covered):
            return one
    known = ", ".join(one.counted_as for one in settings.accelerators)
    if resource:
        raise Unrenderable("NoAccelerator", f"Queue {queue} holds no quota for {resource!r}.")
    raise Unrenderable(
        "NoAccelerator",
        f"Queue {queue} holds no quota for an accelerator that this cluster's agent knows "
        f"({known or 'none'}).",
    )


def require_authority(settings: ClusterSettings) -> str:
    """The PEM of the agent's CA; raises Unrenderable before there is one."""
    if not settings.agent_ca:
        raise Unrenderable("NoAgentCA", "The agent has no certificate for its pods yet.")
    return settings.agent_ca


@dataclass(frozen=True, slots=True)
class ClaimHolder:
    """A pod that holds devices, and the name of its claim, which others join.

    The name is empty where devices are counted: who sits there is a process of the pod.
    """

    name: str
    uid: str
    claim: str


def require_shared(device: Accelerator | None, holder: ClaimHolder | None = None) -> Accelerator:
    """The device that is to be shared; raises Unrenderable for none, or another than is held."""
    if device is None:
        raise Unrenderable("NoAccelerator", "It is to share devices, and asks for none.")
    if holder is not None and bool(holder.claim) != bool(device.device_class):
        raise Unrenderable(
            "NoAccelerator",
            f"Its lease holds devices of another accelerator than {device.counted_as}.",
        )
    return device


def pod_spec(
    settings: ClusterSettings, device: Accelerator | None, claim: str, *, joins: bool = False
) -> Object:
    """The spec of a pod without containers.

    `claim` names its ResourceClaimTemplate, or the claim of another pod that it joins.
    """
    spec: Object = {
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _pod_security(settings.run_as_user),
        "tolerations": tolerations(settings, device),
    }
    if device is not None:
        if device.runtime_class:
            spec["runtimeClassName"] = device.runtime_class
        if device.device_class:
            source = "resourceClaimName" if joins else "resourceClaimTemplateName"
            spec["resourceClaims"] = [{"name": CLAIM, source: claim}]
    return spec


def claim_template(metadata: Object, device: Accelerator | None, count: int) -> list[Object]:
    """The ResourceClaimTemplate of claimed accelerators; empty for others.

    Raises Unrenderable for parts of several devices: the scheduler might take all of one device.
    """
    if device is None or not device.device_class:
        return []
    if device.capacity and count > 1:
        raise Unrenderable(
            "NoAccelerator",
            f"A pod has a part of one {device.device_class} here, and this one asks for {count}.",
        )
    exactly: Object = {
        "deviceClassName": device.device_class,
        "allocationMode": "ExactCount",
        "count": count,
    }
    if device.selector:
        exactly["selectors"] = [{"cel": {"expression": device.selector}}]
    if device.capacity:
        exactly["capacity"] = {"requests": dict(device.capacity)}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": metadata,
            "spec": {"spec": {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}},
        }
    ]


def devices(device: Accelerator | None, count: int) -> tuple[Object, dict[str, str]]:
    """Claims of a container, and the resources that it requests and is limited to."""
    if device is None:
        return {}, {}
    if device.device_class:
        return {"claims": [{"name": CLAIM}]}, {}
    return {}, {device.resource: str(count)}


def variables(device: Accelerator | None) -> dict[str, str]:
    """Environment variables of every container of ours."""
    values = {"HOME": "/tmp", "TMPDIR": "/tmp", "USER": "windlass"}  # noqa: S108
    if device is None:
        # Else NVIDIA's runtime shows every device to images that ask for `all`.
        return values | {"NVIDIA_VISIBLE_DEVICES": "void"}
    return values | device.env


def node_selector(
    asked: Mapping[str, str],
    device: Accelerator | None,
    chosen: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """The labels of nodes that it may go to; raises Unrenderable.

    `chosen` are those of an accelerator that a tenant asks for, within what the operator allows.
    """
    try:
        checked, wanted = names.node_selector(asked), names.node_selector(chosen)
    except names.BadName as error:
        raise Unrenderable("BadName", str(error)) from error
    given = (device.node_selector if device else {}) | checked
    if other := next((key for key in wanted if given.get(key, wanted[key]) != wanted[key]), None):
        raise Unrenderable(
            "NoAccelerator",
            f"Nodes of the accelerator have {other}={wanted[other]}, those of the project "
            f"{other}={given[other]}.",
        )
    return wanted | given


def identity_volume() -> Object:
    """The volume of the pod's token for the agent, and of the agent's CA."""
    token = {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}
    authority = {
        "path": "ca.crt",
        "fieldRef": {"fieldPath": f"metadata.annotations['{CA_ANNOTATION}']"},
    }
    sources = [{"serviceAccountToken": token}, {"downwardAPI": {"items": [authority]}}]
    return {"name": SECRETS_VOLUME, "projected": {"sources": sources}}


def tolerations(settings: ClusterSettings, device: Accelerator | None) -> list[Object]:
    """The taints that a pod with a device bears, and for how long a node may be away."""
    found = [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": settings.deadlines.unreachable,
        }
        for condition in ("not-ready", "unreachable")
    ]
    theirs = device.tolerations if device else ()
    return found + [
        {name: value for name, value in toleration.model_dump().items() if value}
        for toleration in theirs
    ]


def _pod_security(user: int | None) -> Object:
    found: Object = {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if user is not None:
        found |= {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
        found["fsGroupChangePolicy"] = "OnRootMismatch"
    return found
