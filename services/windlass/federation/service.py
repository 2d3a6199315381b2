"""RPCs for the agents of proxies."""

from functools import partial
from typing import Any

import grpc
import msgspec

from windlass.api.federation.v1 import federation_pb2 as pb
from windlass.api.federation.v1 import federation_pb2_grpc as rpc
from windlass.core.clock import now_ms
from windlass.core.errors import InvalidArgument
from windlass.core.ids import new_name
from windlass.core.rpc.auth import current_agent
from windlass.federation import domain
from windlass.federation.domain import Federated
from windlass.federation.store import FederationStore

MAX_OBJECTS = 100
# Of a spec; a larger one is left out, so that the object is refused and not its agent's call.
MAX_BYTES = 64 * 1024
_LONGEST_NAME = 253


class FederationAgentServicer(rpc.FederationAgentServiceServicer):
    """Each call concerns objects of the cluster of the credential alone."""

    def __init__(self, store: FederationStore):
        self._store = store

    async def ReportObjects(
        self, request: pb.ReportObjectsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ReportObjectsResponse:
        """Stores what is new of them."""
        if len(request.objects) > MAX_OBJECTS:
            raise InvalidArgument(
                f"At most {MAX_OBJECTS} objects are allowed in one call.", param="objects"
            )
        cluster_id = current_agent().cluster_id
        for item in request.objects:
            _check(item)
            spec = item.spec if len(item.spec) <= MAX_BYTES else b"{}"
            new = Federated(
                id=new_name("fed-"),
                cluster_id=cluster_id,
                uid=item.uid,
                namespace=item.namespace,
                name=item.name,
                kind=item.kind,
                spec=spec,
                created_at_ms=now_ms(),
            )
            decide = partial(domain.told, spec=spec, deleting=item.deleting)
            await self._store.tell(new, decide)
        return pb.ReportObjectsResponse()


def _check(item: pb.FederatedObject) -> None:
    for field in ("uid", "namespace", "name"):
        value = getattr(item, field)
        if not 0 < len(value) <= _LONGEST_NAME or not value.isprintable():
            raise InvalidArgument(f"An object needs its {field}.", param=f"objects.{field}")
    if item.kind not in domain.KINDS:
        raise InvalidArgument(f"{item.kind[:40]!r} is not federated.", param="objects.kind")
    try:
        msgspec.json.decode(item.spec, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InvalidArgument("spec must be a JSON object.", param="objects.spec") from error
