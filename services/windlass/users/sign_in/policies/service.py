"""The servicer of organizations' policies for sign-ins."""

from typing import Any

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.api.users.v1 import sign_in_pb2_grpc as rpc
from windlass.core.db.wake import Wake
from windlass.core.rpc import audited
from windlass.core.rpc.auth import current
from windlass.policy import ORGANIZATION_OWNER
from windlass.users.domain import KEYS_TOPIC, require_grant
from windlass.users.session_strength.strength import SignInPolicy
from windlass.users.sign_in.policies.explanation import AccessExplanations
from windlass.users.sign_in.policies.store import SignInPolicies, valid_policy


class SignInPoliciesServicer(rpc.SignInPoliciesServiceServicer):
    """SignInPoliciesService."""

    def __init__(self, policies: SignInPolicies, explanations: AccessExplanations, wake: Wake):
        self._policies = policies
        self._explanations = explanations
        self._wake = wake

    async def GetSignInPolicy(
        self, request: pb.GetSignInPolicyRequest, context: Any
    ) -> pb.SignInPolicy:
        """The policy of the caller's organization."""
        return _message(await self._policies.get(current().organization_id))

    async def PutSignInPolicy(
        self, request: pb.PutSignInPolicyRequest, context: Any
    ) -> pb.SignInPolicy:
        """Sets the policy of the caller's organization."""
        require_grant(current(), ORGANIZATION_OWNER)
        policy = valid_policy(
            required=request.required,
            acr=tuple(dict.fromkeys(request.administrators_acr)),
            amr=tuple(dict.fromkeys(request.administrators_amr)),
            max_age=request.administrators_max_age,
            fresh_max_age=request.fresh_max_age,
        )
        before = await self._policies.get(current().organization_id)
        await self._policies.put(current().organization_id, policy)
        audited.change(before, policy, resource=current().organization_id)
        self._wake.touch(KEYS_TOPIC)
        return _message(policy)

    async def ExplainAccess(
        self, request: pb.ExplainAccessRequest, context: Any
    ) -> pb.ExplainAccessResponse:
        """Explains what the caller may."""
        return await self._explanations.of(current())

    async def ExplainMemberAccess(
        self, request: pb.ExplainMemberAccessRequest, context: Any
    ) -> pb.ExplainAccessResponse:
        """Explains what another person of the caller's organization may."""
        return await self._explanations.of_member(current(), request.user_id)


def _message(policy: SignInPolicy) -> pb.SignInPolicy:
    return pb.SignInPolicy(**{name: getattr(policy, name) for name in SignInPolicy.__slots__})
