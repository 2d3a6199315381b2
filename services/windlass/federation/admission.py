"""Admission of an object's spec to another cluster: tenants' code, so all that is not known to be
harmless is refused. Pure.

What Pod Security `restricted` asks for is filled in where a pod says nothing, and refused where
it says otherwise. What exists in the object's own cluster alone (Secrets, ConfigMaps, claims,
accounts) is not copied, and a pod that needs it is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.api.jobs.v1 import jobs_pb2
from windlass.federation.amounts import Amounts, asked_by
from windlass.kubernetes.labels import BATCH_PREFIX, KUEUE_PREFIX, MANAGER_KEY, PREFIX

Object = dict[str, Any]
MAX_PODS = 4096
_RESERVED = (PREFIX, KUEUE_PREFIX, MANAGER_KEY)
# What the API server of the object's own cluster has added.
_GENERATED = (BATCH_PREFIX, "controller-uid", "job-name")
_JOB = frozenset(
    {
        "parallelism", "completions", "completionMode", "backoffLimit", "backoffLimitPerIndex",
        "maxFailedIndexes", "activeDeadlineSeconds", "podFailurePolicy", "podReplacementPolicy",
        "successPolicy", "template",
    }
)  # fmt: skip
# Of the cluster where it is, or of no use where it runs.
_JOB_LEFT = frozenset(
    {"managedBy", "suspend", "selector", "manualSelector", "ttlSecondsAfterFinished"}
)
_JOBSET = frozenset(
    {"replicatedJobs", "network", "successPolicy", "failurePolicy", "startupPolicy"}
)
_JOBSET_LEFT = frozenset({"managedBy", "suspend", "ttlSecondsAfterFinished"})
_POD = frozenset(
    {
        "containers", "initContainers", "volumes", "restartPolicy", "nodeSelector", "affinity",
        "tolerations", "topologySpreadConstraints", "terminationGracePeriodSeconds",
        "activeDeadlineSeconds", "dnsPolicy", "enableServiceLinks", "hostname", "subdomain",
        "setHostnameAsFQDN", "shareProcessNamespace", "securityContext",
    }
)  # fmt: skip
_CONTAINER = frozenset(
    {
        "name", "image", "imagePullPolicy", "command", "args", "workingDir", "env", "ports",
        "resources", "volumeMounts", "livenessProbe", "readinessProbe", "startupProbe",
        "lifecycle", "restartPolicy", "resizePolicy", "terminationMessagePath",
        "terminationMessagePolicy", "stdin", "stdinOnce", "tty", "securityContext",
    }
)  # fmt: skip
_OF_NODES = ("node-role.kubernetes.io/", "node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_ENV_SOURCES = frozenset({"fieldRef", "resourceFieldRef"})
_VOLUMES = frozenset({"name", "emptyDir", "downwardAPI"})
_CONTEXT = frozenset(
    {
        "runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "fsGroup",
        "fsGroupChangePolicy", "supplementalGroups", "supplementalGroupsPolicy", "capabilities",
        "allowPrivilegeEscalation", "privileged", "readOnlyRootFilesystem",
    }
)  # fmt: skip


class SpecRefused(Exception):
    """A spec that may not run; the message names the field."""


@dataclass(frozen=True, slots=True)
class AdmittedSpec:
    """A spec that may run, and what all its pods take together."""

    spec: Object
    resources: jobs_pb2.Resources = field(default_factory=jobs_pb2.Resources)


def is_suspended(spec: bytes) -> bool:
    """Returns True if its owner does not want it to run yet."""
    return bool(msgspec.json.decode(spec, type=Object).get("suspend"))


def admit(kind: str, spec: bytes) -> AdmittedSpec:
    """The spec as its worker's cluster gets it; raises SpecRefused."""
    given = msgspec.json.decode(spec, type=Object)
    if not given:
        raise SpecRefused("spec is empty, or larger than 64 KiB.")
    asked = Amounts()
    if kind == "Job":
        return AdmittedSpec(_job(given, "spec", asked, 1), asked.resources())
    left = {name: value for name, value in given.items() if name not in _JOBSET_LEFT}
    _only(left, _JOBSET, "spec")
    jobs = []
    for at, one in enumerate(_list(left, "replicatedJobs", "spec")):
        where = f"spec.replicatedJobs[{at}]"
        _only(one, {"name", "groupName", "replicas", "template", "dependsOn"}, where)
        template = _object(one, "template", where)
        _only(template, {"metadata", "spec"}, f"{where}.template")
        inner = _object(template, "spec", f"{where}.template")
        job = _job(inner, f"{where}.template.spec", asked, _count(one, "replicas", where))
        jobs.append(one | {"template": {"spec": job}})
    return AdmittedSpec(left | {"replicatedJobs": jobs}, asked.resources())


def _job(spec: Object, where: str, asked: Amounts, replicas: int) -> Object:
    left = {name: value for name, value in spec.items() if name not in _JOB_LEFT}
    _only(left, _JOB, where)
    pods = replicas * _count(left, "parallelism", where)
    template = _object(left, "template", where)
    pod = _pod(_object(template, "spec", f"{where}.template"), f"{where}.template.spec")
    asked.add(asked_by(pod), pods)
    if asked.pods > MAX_PODS:
        raise SpecRefused(f"{where}.parallelism: must be at most {MAX_PODS}.")
    metadata = _metadata(_object(template, "metadata", f"{where}.template", {}), where)
    return left | {"template": {"metadata": metadata, "spec": pod}}


def _metadata(metadata: Object, where: str) -> Object:
    kept: Object = {}
    for part in ("labels", "annotations"):
        pairs = _object(metadata, part, f"{where}.template.metadata", {})
        for key in pairs:
            if key.startswith(_RESERVED):
                raise SpecRefused(
                    f"{where}.template.metadata.{part}: {key} is reserved for Windlass."
                )
        kept[part] = {key: value for key, value in pairs.items() if not key.startswith(_GENERATED)}
    return kept


def _pod(pod: Object, where: str) -> Object:
    # `false` is what a field that is not known to us says when it is not used.
    given = {
        name: value for name, value in _said(pod).items() if value is not False or name in _POD
    }
    if given.get("schedulerName") == "default-scheduler":
        del given["schedulerName"]
    _only(given, _POD, where)
    for at, volume in enumerate(_list(given, "volumes", where)):
        _only(volume, _VOLUMES, f"{where}.volumes[{at}]")
    _tolerations(given, where)
    context = _context(given, where)
    made = given | {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": _PROFILE} | context,
        # These pods call no API of the cluster.
        "automountServiceAccountToken": False,
    }
    for part in ("containers", "initContainers"):
        listed = _list(given, part, where)
        if listed:
            made[part] = [_container(one, f"{where}.{part}[{at}]") for at, one in enumerate(listed)]
    return made


_PROFILE = {"type": "RuntimeDefault"}


def _tolerations(pod: Object, where: str) -> None:
    """A cluster keeps its own nodes by taints, and what is wrong with a node it says by them."""
    for at, one in enumerate(_list(pod, "tolerations", where)):
        key = str(one.get("key") or "")
        if not key or key.startswith(_OF_NODES):
            raise SpecRefused(
                f"{where}.tolerations[{at}].key must be set, and must not be a taint of "
                "Kubernetes itself."
            )


def _container(container: Object, where: str) -> Object:
    given = _said(container)
    _only(given, _CONTAINER, where)
    for at, one in enumerate(_list(given, "env", where)):
        source = _object(one, "valueFrom", where, {})
        _only(source, _ENV_SOURCES, f"{where}.env[{at}].valueFrom")
    for at, port in enumerate(_list(given, "ports", where)):
        if port.get("hostPort") or port.get("hostIP"):
            raise SpecRefused(
                f"{where}.ports[{at}].hostPort must not be set: ports of the node cannot be used."
            )
    _only(_object(given, "resources", where, {}), {"limits", "requests"}, f"{where}.resources")
    context = _context(given, where)
    return given | {
        "securityContext": context
        | {"allowPrivilegeEscalation": False, "capabilities": _capabilities(context, where)}
    }


def _context(owner: Object, where: str) -> Object:
    """A securityContext that is within `restricted`."""
    where = f"{where}.securityContext"
    context = _object(owner, "securityContext", where, {})
    _only(_said(context), _CONTEXT, where)
    if context.get("privileged") or context.get("allowPrivilegeEscalation"):
        raise SpecRefused(f"{where}: containers must not be privileged or gain privileges.")
    if context.get("runAsNonRoot") is False or context.get("runAsUser") == 0:
        raise SpecRefused(f"{where}: containers must not run as root.")
    profile = _object(context, "seccompProfile", where, _PROFILE)
    if profile.get("type") not in ("RuntimeDefault", "Localhost"):
        raise SpecRefused(f"{where}.seccompProfile must be RuntimeDefault or Localhost.")
    return context


def _capabilities(context: Object, where: str) -> Object:
    added = _object(context, "capabilities", where, {}).get("add") or []
    if added not in ([], ["NET_BIND_SERVICE"]):
        raise SpecRefused(
            f"{where}.securityContext.capabilities.add may hold only NET_BIND_SERVICE."
        )
    return {"drop": ["ALL"]} | ({"add": added} if added else {})


def _said(owner: Object) -> Object:
    """The fields that are not empty."""
    return {name: value for name, value in owner.items() if value not in (None, [], {})}


def _only(given: Any, known: Any, where: str) -> None:
    for name in sorted(set(given) - set(known)):
        raise SpecRefused(f"{where}.{name} cannot be federated.")


def _object(owner: Object, name: str, where: str, default: Object | None = None) -> Object:
    value = owner.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, dict):
        raise SpecRefused(f"{where}.{name} must be an object.")
    return value


def _list(owner: Object, name: str, where: str) -> list[Object]:
    value = owner.get(name) or []
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise SpecRefused(f"{where}.{name} must be a list of objects.")
    return value


def _count(owner: Mapping[str, Any], name: str, where: str) -> int:
    value = owner.get(name)
    value = 1 if value is None else value
    if not isinstance(value, int) or not 0 <= value <= MAX_PODS:
        raise SpecRefused(f"{where}.{name}: must be between 0 and {MAX_PODS}.")
    return value
