"""The agent's credential in a Secret of its own, with no right to any other."""

import asyncio
from typing import Any

import pytest
from tests.cluster.cluster import TestCluster

from windlass_agent.control_plane.credentials import Credential
from windlass_agent.kube import Forbidden, Kube
from windlass_agent.kube.credentials import SecretCredentials
from windlass_agent.kube.resources import SECRETS

NAME = "windlass-agent-credential"


def rights(namespace: str) -> tuple[dict[str, Any], ...]:
    """The rights in the chart: to read and to change one Secret, which is made empty."""
    here = {"name": "agent", "namespace": namespace}
    rule = {
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": [NAME],
        "verbs": ["get", "patch"],
    }  # fmt: skip
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "agent"}
    subject = {"kind": "ServiceAccount", "name": "agent", "namespace": namespace}
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": namespace}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": here,
         "rules": [rule]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": here,
         "roleRef": role, "subjects": [subject]},
    )  # fmt: skip


def test_it_is_kept_and_replaced(east: TestCluster) -> None:
    namespace = east.namespace("credential")
    east.apply(*rights(namespace))
    account = f"system:serviceaccount:{namespace}:agent"

    async def live() -> None:
        async with (
            await Kube.connect(east.kubeconfig) as admin,
            Kube(admin.access, fields={"Impersonate-User": account}) as kube,
        ):
            store = SecretCredentials(kube, namespace, NAME)
            assert await store.load() is None
            for number in range(2):
                made = Credential(f"wla-{number}", "cluster-1")
                await store.save(made)
                assert await SecretCredentials(kube, namespace, NAME).load() == made
            await store.forget()
            assert await store.load() is None
            await store.save(made)
            other = SecretCredentials(kube, namespace, "another")
            for call in (other.load(), other.save(made)):
                with pytest.raises(Forbidden):
                    await call
            secret = await admin.get(SECRETS.path(namespace, NAME))
            assert sorted(secret["data"]) == ["cluster-id", "credential"]

    asyncio.run(live())
