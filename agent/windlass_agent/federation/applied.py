"""Jobs and JobSets of this cluster that another one is to run, as their agent sees them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.api.federation.v1 import federation_pb2
from windlass.kubernetes.labels import FEDERATION
from windlass_agent.kube.resources import JOBS, JOBSETS, Resource

Object = dict[str, Any]
# What `spec.managedBy` says of an object that is ours.
RESOURCES: Mapping[str, Resource] = {one.kind: one for one in (JOBS, JOBSETS)}
# The control plane takes no more of a spec, and refuses an object that has none.
MAX_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class AppliedObject:
    """One object, as far as it matters here."""

    kind: str
    namespace: str
    name: str
    uid: str
    # Somebody deleted it; it stays while it is held.
    deleting: bool
    held: bool
    spec: bytes
    status: Object

    @property
    def path(self) -> str:
        """The object's path in the API."""
        return RESOURCES[self.kind].path(self.namespace, self.name)

    def message(self) -> federation_pb2.FederatedObject:
        """Returns the message that tells the control plane of it."""
        return federation_pb2.FederatedObject(
            uid=self.uid,
            namespace=self.namespace,
            name=self.name,
            kind=self.kind,
            spec=self.spec,
            deleting=self.deleting,
        )


def trim(kind: str, item: Object) -> AppliedObject | None:
    """Returns the object as far as it matters; None for one that is not federated."""
    metadata, spec = item["metadata"], item.get("spec") or {}
    if spec.get("managedBy") != FEDERATION:
        return None
    data = msgspec.json.encode(spec)
    return AppliedObject(
        kind=kind,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        deleting="deletionTimestamp" in metadata,
        held=FEDERATION in (metadata.get("finalizers") or ()),
        spec=data if len(data) <= MAX_BYTES else b"{}",
        status=item.get("status") or {},
    )
