"""Builds the rbac service."""

from windlass.api.rbac.v1 import rbac_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.core.app import App
from windlass.rbac.service import RbacInternalServicer, RbacServicer
from windlass.rbac.store import AuditStore


async def build(app: App) -> None:
    """Constructs and registers rbac."""
    audit = AuditStore(app.database)
    users = app.clients.stub(users_pb2_grpc.UsersInternalServiceStub)
    app.serve(RbacServicer(audit), rpc.add_RbacServiceServicer_to_server)
    app.serve(RbacInternalServicer(audit, users), rpc.add_RbacInternalServiceServicer_to_server)
