"""The servicer of organizations' policies for their keys."""

from typing import Any

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core.db.paging import cut
from windlass.core.db.wake import Wake
from windlass.core.rpc.auth import current
from windlass.users import messages
from windlass.users.keys.policies import KeyPolicies, KeyPolicy, valid_policy
from windlass.users.keys.store import KeyStore
from windlass.users.keys.unused import TOPIC, UnusedKeys

# Of those that end by a policy, in one answer.
SHOWN_KEYS = 100


class KeyPoliciesServicer(rpc.KeyPoliciesServiceServicer):
    """KeyPoliciesService."""

    def __init__(self, policies: KeyPolicies, unused: UnusedKeys, keys: KeyStore, wake: Wake):
        self._policies = policies
        self._unused = unused
        self._keys = keys
        self._wake = wake

    async def GetKeyPolicy(self, request: pb.GetKeyPolicyRequest, context: Any) -> pb.KeyPolicy:
        """The policy of the caller's organization."""
        return _message(await self._policies.get(current().organization_id))

    async def PutKeyPolicy(
        self, request: pb.PutKeyPolicyRequest, context: Any
    ) -> pb.PutKeyPolicyResponse:
        """Sets the policy, unless it is only asked what that would end."""
        organization_id = current().organization_id
        policy = valid_policy(
            request.longest_life,
            request.unused_days,
            service_accounts_only=request.service_accounts_only,
        )
        found = await self._unused.find(organization_id, policy.unused_days, limit=SHOWN_KEYS + 1)
        page, more = cut(await self._keys.newest(found, limit=SHOWN_KEYS + 1), SHOWN_KEYS)
        if not request.dry_run:
            await self._policies.put(organization_id, policy)
            self._wake.touch(TOPIC)
        return pb.PutKeyPolicyResponse(
            policy=_message(policy), ended_keys=map(messages.api_key, page), has_more=more
        )


def _message(policy: KeyPolicy) -> pb.KeyPolicy:
    return pb.KeyPolicy(**{name: getattr(policy, name) for name in KeyPolicy.__slots__})
