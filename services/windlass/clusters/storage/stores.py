"""The stores of clusters, bundled."""

from dataclasses import dataclass
from typing import Self

from windlass.clusters.storage.assignments import AssignmentStore
from windlass.clusters.storage.clusters import ClusterStore
from windlass.clusters.storage.credentials import CredentialStore
from windlass.clusters.storage.evictions import EvictionStore
from windlass.clusters.storage.inventory import InventoryStore
from windlass.clusters.storage.issuers import IssuerStore
from windlass.clusters.storage.quota import QuotaStore
from windlass.clusters.storage.specs import SpecStore
from windlass.clusters.storage.workloads import WorkloadStore
from windlass.core.db import Database


@dataclass(frozen=True, slots=True)
class Stores:
    """One store per subject."""

    clusters: ClusterStore
    credentials: CredentialStore
    workloads: WorkloadStore
    specs: SpecStore
    assignments: AssignmentStore
    quotas: QuotaStore
    inventory: InventoryStore
    issuers: IssuerStore
    evictions: EvictionStore

    @classmethod
    def on(cls, database: Database, *, credential_seconds: float) -> Self:
        """Creates the stores on one database."""
        clusters = ClusterStore(database)
        return cls(
            clusters=clusters,
            credentials=CredentialStore(database, clusters, lifetime_seconds=credential_seconds),
            workloads=WorkloadStore(database),
            specs=SpecStore(database),
            assignments=AssignmentStore(database),
            quotas=QuotaStore(database),
            inventory=InventoryStore(database),
            issuers=IssuerStore(database),
            evictions=EvictionStore(database),
        )
