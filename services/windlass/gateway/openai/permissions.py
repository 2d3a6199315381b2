"""/v1/fine_tuning/checkpoints/{name}/permissions: sharing with the organization's projects."""

from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from windlass.api.models.v1 import models_pb2 as pb
from windlass.api.models.v1 import models_pb2_grpc as rpc
from windlass.bounds import MAX_GRANTED_PROJECTS
from windlass.core.app import App
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter

Id = Annotated[str, Field(min_length=1, max_length=IDENTIFIER_LENGTH)]
Order = Literal["ascending", "descending"]


class Projects(Body):
    """Projects that may use the model."""

    project_ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_GRANTED_PROJECTS)]


def permissions_router(app: App) -> ResourceRouter:
    """Permissions of fine-tuned models and checkpoints; for owners of the organization."""
    # A base model's name may have a slash, and so may what was made of it.
    router = ResourceRouter(
        prefix="/fine_tuning/checkpoints/{checkpoint:path}/permissions", tags=["fine-tuning"]
    )
    models = app.clients.stub(rpc.ModelsServiceStub)

    @router.post("")
    async def create_permissions(checkpoint: str, body: Projects) -> Json:
        """Lets projects use the model; one that may already keeps its permission."""
        made = await models.CreateGrants(
            pb.CreateGrantsRequest(model=checkpoint, project_ids=body.project_ids)
        )
        return page([_render(grant) for grant in made.grants])

    @router.get("")
    async def list_permissions(
        checkpoint: str,
        after: After = "",
        limit: Limit = 0,
        order: Order = "descending",
        project_id: Annotated[str, Query(max_length=IDENTIFIER_LENGTH)] = "",
    ) -> Json:
        """Lists the projects that may use the model."""
        found = await models.ListGrants(
            pb.ListGrantsRequest(
                model=checkpoint,
                after=after,
                limit=limit,
                ascending=order == "ascending",
                project_id=project_id,
            )
        )
        return page([_render(grant) for grant in found.grants], found.has_more)

    @router.delete("/{permission_id}")
    async def delete_permission(checkpoint: str, permission_id: str) -> Json:
        """Takes the use away again."""
        await models.DeleteGrant(pb.DeleteGrantRequest(model=checkpoint, grant_id=permission_id))
        return {"id": permission_id, "object": "checkpoint.permission", "deleted": True}

    return router


def _render(grant: pb.Grant) -> Json:
    return {
        "id": grant.id,
        "object": "checkpoint.permission",
        "created_at": grant.created_at,
        "project_id": grant.project_id,
    }
