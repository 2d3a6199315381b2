"""/v1/audit_retention: how long events of the audit log are kept."""

from typing import Annotated

from pydantic import Field

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.api.rbac.v1 import rbac_pb2_grpc as rpc
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json
from windlass.gateway.parameters import Body
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter

KIND = "audit_retention"


class PutRetention(Body):
    """An organization's own retention."""

    days: Annotated[
        int,
        Field(ge=0, le=36_500, description="At least the installation's; 0: as long as that."),
    ]


def audit_retention_router(app: App) -> ResourceRouter:
    """Retention of the audit log."""
    router = ResourceRouter(prefix="/audit_retention", tags=["usage and audit"])
    rbac = app.clients.stub(rpc.RbacServiceStub)

    @router.get("")
    async def get_audit_retention() -> Json:
        """Returns how long events are kept, and which were dropped."""
        return plain(await rbac.GetAuditRetention(pb.GetAuditRetentionRequest()), KIND)

    @router.put("")
    async def put_audit_retention(body: PutRetention) -> Json:
        """Keeps the organization's events longer than the installation does."""
        return plain(
            await rbac.PutAuditRetention(pb.PutAuditRetentionRequest(days=body.days)), KIND
        )

    return router
