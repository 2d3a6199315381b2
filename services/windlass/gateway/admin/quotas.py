"""/v1/quotas: what an organization and its projects may have."""

from typing import Annotated

from fastapi import Query
from pydantic import Field

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import MAX_QUOTA
from windlass.core.app import App
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import Body
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter

ProjectId = Annotated[
    str,
    Query(max_length=IDENTIFIER_LENGTH, description="Id of a project; empty: the organization."),
]


class PutQuota(Body):
    """A bound; 0 is none."""

    bound: Annotated[int, Field(ge=0, le=MAX_QUOTA)]
    project_id: Annotated[str, Field(max_length=IDENTIFIER_LENGTH)] = ""


def _render(answer: pb.Quotas) -> Json:
    return page([{"id": one.name, **plain(one, "quota")} for one in answer.quotas])


def quotas_router(app: App) -> ResourceRouter:
    """Quotas."""
    router = ResourceRouter(prefix="/quotas", tags=["quotas"])
    users = app.clients.stub(rpc.UsersServiceStub)

    async def put(name: str, project_id: str, bound: int | None) -> Json:
        request = pb.PutQuotaRequest(name=name, project_id=project_id, bound=bound)
        if project_id:
            return _render(await users.PutProjectQuota(request))
        return _render(await users.PutOrganizationQuota(request))

    @router.get("")
    async def list_quotas(project_id: ProjectId = "") -> Json:
        """Lists the quotas of the organization, or of a project of it."""
        return _render(await users.GetQuotas(pb.GetQuotasRequest(project_id=project_id)))

    @router.put("/{name}")
    async def put_quota(name: str, body: PutQuota) -> Json:
        """Sets a bound: of a project (its organization's owners) or of all (operators)."""
        return await put(name, body.project_id, body.bound)

    @router.delete("/{name}")
    async def delete_quota(name: str, project_id: ProjectId = "") -> Json:
        """Resets a quota to the installation's default."""
        return await put(name, project_id, None)

    return router
