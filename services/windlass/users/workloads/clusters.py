"""Clusters as issuers: each is a provider that nobody sets up, for the projects assigned to it.

A cluster's agent says who signs the tokens of its service accounts. It may lie, or its keys be
another's: what they sign counts for pods of that cluster alone, each in the namespace of the
project whose rule it fulfils.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.core.errors import NotFound, from_rpc
from windlass.users.workloads.domain import FederationRule, WorkloadIssuer
from windlass.users.workloads.expressions import ASSERTION, Attribute

PREFIX = "cluster:"
# What a pod asks its cluster for a token for.
AUDIENCE = "windlass"
_KUBERNETES = f'{ASSERTION}["kubernetes.io"]'
# Attributes of a pod's token, beside its claims.
_TRANSFORMATIONS = (
    ("namespace", f"{_KUBERNETES}.namespace"),
    ("service_account", f"{_KUBERNETES}.serviceaccount.name"),
    ("pod", f"{_KUBERNETES}.pod.name"),
)
_Project = tuple[str, str]


@dataclass(frozen=True, slots=True)
class IssuingCluster:
    """A cluster, and the namespace of each project there, by its organization and id."""

    provider: WorkloadIssuer
    namespaces: Mapping[_Project, str]

    def admits(self, rule: FederationRule, attributes: Mapping[str, Attribute]) -> bool:
        """Returns True if a token comes from the namespace of the rule's project."""
        namespace = self.namespaces.get((rule.organization_id, rule.project_id))
        return namespace is not None and namespace == attributes.get("namespace")

    def has(self, organization_id: str, project_id: str = "") -> bool:
        """Returns True if a project, or any of an organization, is assigned to the cluster."""
        return any(
            organization == organization_id and project_id in ("", project)
            for organization, project in self.namespaces
        )


class IssuingClusters:
    """Asks for clusters by the ids of their providers, `cluster:CLUSTER_ID`."""

    def __init__(self, clusters: rpc.ClustersInternalServiceAsyncStub):
        self._clusters = clusters

    async def find(self, provider_id: str) -> IssuingCluster | None:
        """The cluster of a provider's id; None where there is none, or none that issues."""
        cluster_id = provider_id.removeprefix(PREFIX)
        if cluster_id == provider_id:
            return None
        try:
            found = await self._clusters.LookupIssuer(
                pb.LookupIssuerRequest(cluster_id=cluster_id), timeout=5
            )
        except grpc.aio.AioRpcError as error:
            if isinstance(from_rpc(error), NotFound):
                return None
            raise
        provider = WorkloadIssuer(
            id=provider_id,
            organization_id="",
            name=provider_id,
            description="",
            issuer=found.issuer,
            audience=AUDIENCE,
            jwks=found.jwks,
            transformations=_TRANSFORMATIONS,
            enabled=True,
            created_at=0,
            updated_at=0,
            changed_by="",
            rests_on=(),
        )
        namespaces = {
            (one.organization_id, one.project_id): one.namespace for one in found.namespaces
        }
        return IssuingCluster(provider, namespaces)
