"""Pods of a registered cluster act as service accounts, without any set-up of an issuer.

The cluster's keys and its pods' tokens are made here, as Kubernetes makes them; the agent is one
on the wire, which says what a test has it say.
"""

import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.agents.wire_agent import WireAgent
from tests.support.clients.openai_admin import administering, foreign_key
from tests.support.fakes.oidc_issuer import claims, jwks, signed, signing_key
from tests.support.services.front import Front
from tests.support.services.member_keys import Key
from tests.support.services.workloads import Workloads

from windlass.api.clusters.v1 import clusters_pb2 as pb

ISSUER = "https://kubernetes.default.svc.cluster.local"
KEY = signing_key("RS256")


class ClusterAgent(WireAgent):
    """An agent of a Kubernetes cluster."""

    executor = "kubernetes"

    async def say(self, issuer: str, keys: bytes) -> None:
        request = pb.ReportIssuerRequest(issuer=issuer, jwks=keys.decode())
        await self._stub.ReportIssuer(request, metadata=self._metadata)


@pytest.fixture
async def agent(front: Front) -> AsyncIterator[ClusterAgent]:
    agent = await ClusterAgent.join(front.app, "east")
    await agent.say(ISSUER, jwks(KEY))
    yield agent
    await agent.leave()


def pod(namespace: str, account: str = "trainer", **changed: Any) -> str:
    """A token as a pod has it from its cluster."""
    now = int(time.time())
    claims = {
        "aud": ["windlass"],
        "iss": ISSUER,
        "sub": f"system:serviceaccount:{namespace}:{account}",
        "iat": now,
        "nbf": now,
        "exp": now + 3607,
        "jti": "f1e1",
        "kubernetes.io": {
            "namespace": namespace,
            "serviceaccount": {"name": account, "uid": "u"},
            "pod": {"name": "p", "uid": "u"},
        },
    }
    return signed(claims | changed, KEY, algorithm="RS256", typ=None)


async def assigned(owner: Key, cluster_id: str, project: str) -> str:
    """The namespace of a project in a cluster."""
    path = f"/v1/clusters/{cluster_id}/assignments/{project}"
    answer = await owner.ask("PUT", path, json={})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["namespace"])


async def test_a_pod_of_an_assigned_project_works(
    workloads: Workloads, admin: AsyncOrganization, agent: ClusterAgent, front_owner: Key
) -> None:
    rules, provider = (
        admin.workload_identity_providers.federation_rules,
        f"cluster:{agent.cluster_id}",
    )
    wanted: Any = {
        "project_id": workloads.project,
        "service_account_id": workloads.account,
        "attribute_matchers": {"service_account": "trainer"},
    }
    with pytest.raises(Exception, match="No identity provider"):
        await rules.create(provider, **wanted)
    namespace = await assigned(front_owner, agent.cluster_id, workloads.project)
    rule = await rules.create(provider, **wanted)
    assert [one.id async for one in rules.list(provider)] == [rule.id]
    workloads.provider = provider
    key = await workloads.key(pod(namespace))
    assert (await key.ask("GET", "/v1/files")).status_code == 200
    nowhere: Any = {"kubernetes.io": 1}
    wrong = [
        pod("kube-system"), pod(namespace, "default"), pod(namespace, iss="https://other"),
        pod(namespace, aud=["https://kubernetes.default.svc"]), pod(""), pod(namespace, **nowhere),
    ]  # fmt: skip
    for token in wrong:
        assert (await workloads.exchange(token)).status_code == 400
    await rules.delete(rule.id, workload_identity_provider_id=provider)
    assert await key.ends_within_a_second()


async def test_a_cluster_speaks_for_its_own_pods_alone(
    workloads: Workloads, admin: AsyncOrganization, agent: ClusterAgent, front_owner: Key
) -> None:
    front = workloads.front
    namespace = await assigned(front_owner, agent.cluster_id, workloads.project)
    rules = admin.workload_identity_providers.federation_rules
    wanted: Any = {"attribute_matchers": {"service_account": "trainer"}}
    mine: Any = {"project_id": workloads.project, "service_account_id": workloads.account}
    await rules.create(f"cluster:{agent.cluster_id}", **mine, **wanted)
    # A rogue one has keys of its own, and names the same issuer.
    rogue = await ClusterAgent.join(front.app, "rogue")
    await rogue.say(ISSUER, jwks(KEY))
    async with administering(front, await foreign_key(front)) as foreign:
        theirs = (await foreign.projects.create(name="Theirs")).id
        account = (await foreign.projects.service_accounts.create(theirs, name="ci")).id
        there: Any = {"project_id": theirs, "service_account_id": account}
        foreign_rules = foreign.workload_identity_providers.federation_rules
        other = await assigned(front_owner, rogue.cluster_id, theirs)
        await foreign_rules.create(f"cluster:{rogue.cluster_id}", **there, **wanted)
        with pytest.raises(Exception, match="No identity provider"):
            await foreign_rules.create(f"cluster:{agent.cluster_id}", **there, **wanted)
    token = pod(namespace)
    tries = {
        (f"cluster:{agent.cluster_id}", workloads.account): 200,
        (f"cluster:{rogue.cluster_id}", workloads.account): 400,
        (f"cluster:{rogue.cluster_id}", account): 400,
        (f"cluster:{agent.cluster_id}", account): 400,
        ("cluster:none", workloads.account): 400,
        (workloads.provider, workloads.account): 400,
    }
    for (provider, who), status in tries.items():
        answer = await workloads.exchange(
            token, identity_provider_id=provider, service_account_id=who
        )
        assert answer.status_code == status, (provider, who)
    answer = await workloads.exchange(
        pod(other), identity_provider_id=f"cluster:{rogue.cluster_id}", service_account_id=account
    )
    assert answer.status_code == 200
    await rogue.leave()


async def test_a_pods_own_token_is_its_key(
    workloads: Workloads, agent: ClusterAgent, front_owner: Key
) -> None:
    namespace = await assigned(front_owner, agent.cluster_id, workloads.project)
    at = f"/v1/organization/workload_identity_providers/cluster:{agent.cluster_id}/federation_rules"
    wanted: Any = {
        "project_id": workloads.project,
        "service_account_id": workloads.account,
        "attribute_matchers": {"service_account": "trainer"},
        "accepts_bearer": True,
    }
    rule = (await front_owner.ask("POST", at, json=wanted)).json()["id"]
    named = [f"windlass/{rule}"]

    def shown(token: str) -> Key:
        return Key(workloads.front, "", token, {})

    key = shown(pod(namespace, aud=named))
    assert (await key.ask("GET", "/v1/files")).status_code == 200
    rogue = signing_key("RS256")
    forged = signed({**claims(ISSUER, aud=named)}, rogue, algorithm="RS256", kid=KEY.kid)
    wrong = [
        pod(namespace), pod("kube-system", aud=named), pod(namespace, "default", aud=named),
        pod(namespace, aud=named, iss="https://other"), forged,
    ]  # fmt: skip
    for token in wrong:
        assert await shown(token).status() == 401
    assert (await front_owner.ask("DELETE", f"{at}/{rule}")).status_code == 200
    assert await key.ends_within_a_second()


async def test_what_an_agent_says_is_bounded(front: Front, agent: ClusterAgent) -> None:
    for issuer, keys in (
        ("", jwks(KEY)), ("x" * 3000, jwks(KEY)), ("a\n", jwks(KEY)), (ISSUER, b"{}"),
        (ISSUER, b'{"keys": []}'), (ISSUER, b"[" * 300_000),
    ):  # fmt: skip
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await agent.say(issuer, keys)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
