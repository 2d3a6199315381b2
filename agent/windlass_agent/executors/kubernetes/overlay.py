"""An operator's pod template, merged into ours as `kubectl patch` would: lists by their keys."""

from collections.abc import Collection, Mapping
from typing import Any

from windlass.kubernetes.labels import KUEUE_PREFIX, PREFIX

Object = dict[str, Any]
# Where Kubeflow Trainer looks for the trainer.
CONTAINER = "node"
# Merge keys of a pod template's lists, from Kubernetes' own API; other lists are replaced.
_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "env": "name",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "claims": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
# Of these an item is one thing or another; a different thing replaces it.
_UNIONS = frozenset({"volumes", "env"})
# Lists of things without a key, to which ours are kept.
_JOINED = frozenset({"tolerations", "envFrom", "schedulingGates", "readinessGates"})
_RESERVED = (PREFIX, KUEUE_PREFIX)
# What fences an attempt, and what a tenant's job must never get by a slip.
_OURS = frozenset({"restartPolicy", "serviceAccountName", "automountServiceAccountToken"})


def merge(base: Object, overlay: Object) -> Object:
    """Merges `overlay` into a copy of `base`; None removes a field.

    An item of a keyed list meets that of the same key and comes after them otherwise.
    """
    merged = dict(base)
    for name, value in overlay.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(name, merged.get(name), value)
    return merged


def _merged(name: str, old: Any, new: Any) -> Any:
    if isinstance(new, dict):
        return merge(old if isinstance(old, dict) else {}, new)
    if not isinstance(new, list):
        return new
    items = [merge({}, item) if isinstance(item, dict) else item for item in new]
    if name in _KEYS:
        return _by_key(name, old if isinstance(old, list) else [], items)
    if name in _JOINED and isinstance(old, list):
        return [*old, *(item for item in items if item not in old)]
    return items


def _by_key(name: str, old: list[Object], new: list[Object]) -> list[Object]:
    key = _KEYS[name]
    found = {item[key]: item for item in old}
    for item in new:
        before = found.get(item[key], {})
        if name in _UNIONS and before.keys() & item.keys() == {key}:
            before = {}
        found[item[key]] = merge(before, item)
    return list(found.values())


def check_overlay(overlay: Object, ours: Collection[str] = (CONTAINER,)) -> Object:
    """Validates an overlay: it may not set fields that isolate a pod, nor the commands of `ours`.

    Raises ValueError that names the field.
    """
    _only(overlay, {"metadata", "spec"}, "overlay")
    metadata = _mapping(overlay, "metadata", "overlay")
    _only(metadata, {"labels", "annotations"}, "metadata")
    for part in ("labels", "annotations"):
        for key in _mapping(metadata, part, "metadata"):
            if str(key).startswith(_RESERVED):
                raise ValueError(f"metadata.{part}: {key} cannot be set by the operator.")
    spec = _mapping(overlay, "spec", "overlay")
    for name in sorted(_OURS & spec.keys()):
        raise ValueError(f"spec.{name} cannot be set by the operator.")
    for name in ("containers", "initContainers"):
        if not isinstance(spec.get(name, []), list):
            raise ValueError(f"spec.{name} must be a list.")
    _check_lists(spec, "spec")
    for name in ("containers", "initContainers"):
        for container in spec.get(name, []):
            if container["name"] in ours and container.keys() & {"command", "args"}:
                raise ValueError(f"spec.{name}: the command of {container['name']} is ours.")
    return overlay


def _check_lists(value: Object, where: str) -> None:
    for name, part in value.items():
        place = f"{where}.{name}"
        if isinstance(part, dict):
            _check_lists(part, place)
        elif isinstance(part, list) and name in _KEYS:
            _check_items(part, _KEYS[name], place)


def _check_items(items: list[Any], key: str, place: str) -> None:
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get(key), str | int):
            raise ValueError(f"{place}: each item needs its {key}.")
        _check_lists(item, place)


def _mapping(value: Object, name: str, where: str) -> Object:
    part = value.get(name, {})
    if not isinstance(part, dict):
        raise ValueError(f"{where}: {name} must be a mapping.")
    return part


def _only(value: Object, known: set[str], where: str) -> None:
    for name in value.keys() - known:
        raise ValueError(f"{where}: unknown field {name}.")
