"""/v1/organization/projects/{project_id}/model_permissions."""

from typing import Annotated, Literal

from pydantic import Field

from windlass.api.users.v1 import model_policies_pb2 as pb
from windlass.api.users.v1 import model_policies_pb2_grpc as rpc
from windlass.bounds import MAX_PROJECT_MODELS, MODEL_PATTERN_LENGTH
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json
from windlass.gateway.parameters import Body
from windlass.gateway.plain import enum_name
from windlass.gateway.resource_router import ResourceRouter

Mode = Literal["allow_list", "deny_list"]
ModelId = Annotated[str, Field(min_length=1, max_length=MODEL_PATTERN_LENGTH)]


class ProjectModels(Body):
    """Models that a project is for, or is not; each a name or the beginning of names."""

    mode: Mode
    model_ids: Annotated[list[ModelId], Field(max_length=MAX_PROJECT_MODELS)]


def model_permissions_router(app: App) -> ResourceRouter:
    """Models of projects."""
    path = "/organization/projects/{project_id}/model_permissions"
    router = ResourceRouter(prefix=path, tags=["administration"])
    policies = app.clients.stub(rpc.ModelPoliciesServiceStub)

    @router.get("")
    async def get_model_permissions(project_id: str) -> Json:
        """The models of a project; without a list, a denial of none."""
        return _render(
            await policies.GetModelPolicy(pb.GetModelPolicyRequest(project_id=project_id))
        )

    @router.post("")
    async def update_model_permissions(project_id: str, body: ProjectModels) -> Json:
        """Bounds the models of a project, for requests under way within a second."""
        mode = pb.ModelPolicyMode.Value(f"MODEL_POLICY_MODE_{body.mode.upper()}")
        request = pb.PutModelPolicyRequest(
            project_id=project_id, mode=mode, model_ids=body.model_ids
        )
        return _render(await policies.PutModelPolicy(request))

    @router.delete("")
    async def delete_model_permissions(project_id: str) -> Json:
        """Lets a project use any model."""
        await policies.DeleteModelPolicy(pb.DeleteModelPolicyRequest(project_id=project_id))
        return {"object": "project.model_permissions.deleted", "deleted": True}

    return router


def _render(policy: pb.ModelPolicy) -> Json:
    return {
        "object": "project.model_permissions",
        "mode": enum_name(pb.ModelPolicyMode.DESCRIPTOR, policy.mode),
        "model_ids": list(policy.model_ids),
    }
