"""The servicer of the models that projects are for."""

from typing import Any

from windlass.api.users.v1 import model_policies_pb2 as pb
from windlass.api.users.v1 import model_policies_pb2_grpc as rpc
from windlass.bounds import MAX_PROJECT_MODELS, PROJECT_MODELS_LENGTH
from windlass.core.clock import now_seconds
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument
from windlass.core.rpc.auth import current
from windlass.users.domain import KEYS_TOPIC
from windlass.users.keys.restrictions import ALLOW_LIST, DENY_LIST, valid_models
from windlass.users.model_policies.store import ModelPolicies, ModelPolicy
from windlass.users.roster import Roster
from windlass.users.scope import sees_organization
from windlass.users.store import unknown_project

_MODES = {
    pb.MODEL_POLICY_MODE_ALLOW_LIST: ALLOW_LIST,
    pb.MODEL_POLICY_MODE_DENY_LIST: DENY_LIST,
}
_NUMBERS = {name: number for number, name in _MODES.items()}


class ModelPoliciesServicer(rpc.ModelPoliciesServiceServicer):
    """ModelPoliciesService."""

    def __init__(self, policies: ModelPolicies, roster: Roster, wake: Wake):
        self._policies = policies
        self._roster = roster
        self._wake = wake

    async def GetModelPolicy(
        self, request: pb.GetModelPolicyRequest, context: Any
    ) -> pb.ModelPolicy:
        """The models of a project that the caller may see."""
        organization_id = current().organization_id
        project_id = await self._seen(request.project_id)
        return _message(await self._policies.get(organization_id, project_id))

    async def PutModelPolicy(
        self, request: pb.PutModelPolicyRequest, context: Any
    ) -> pb.ModelPolicy:
        """Bounds the models of a project of the caller's organization."""
        mode = _MODES.get(request.mode)
        if mode is None:
            raise InvalidArgument("mode must be allow_list or deny_list.", param="mode")
        models = valid_models(
            request.model_ids, "model_ids", most=MAX_PROJECT_MODELS, length=PROJECT_MODELS_LENGTH
        )
        project_id = await self._seen(request.project_id)
        policy = ModelPolicy(project_id, current().organization_id, mode, models, now_seconds())
        stored = await self._policies.put(policy)
        self._wake.touch(KEYS_TOPIC)
        return _message(stored)

    async def DeleteModelPolicy(
        self, request: pb.DeleteModelPolicyRequest, context: Any
    ) -> pb.DeleteModelPolicyResponse:
        """Lets a project of the caller's organization use any model; idempotent."""
        project_id = await self._seen(request.project_id)
        await self._policies.delete(current().organization_id, project_id)
        self._wake.touch(KEYS_TOPIC)
        return pb.DeleteModelPolicyResponse()

    async def _seen(self, project_id: str) -> str:
        """A project that the caller may see; raises NotFound."""
        principal = current()
        if not project_id or not (
            sees_organization(principal) or project_id == principal.project_id
        ):
            raise unknown_project(project_id)
        return await self._roster.seen_scope(principal, project_id)


def _message(policy: ModelPolicy) -> pb.ModelPolicy:
    return pb.ModelPolicy(
        project_id=policy.id,
        mode=_NUMBERS[policy.mode],
        model_ids=policy.model_ids,
        updated_at=policy.updated_at,
    )
