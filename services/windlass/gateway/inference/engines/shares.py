"""TenantShares of tenants in what is scarce, by weight."""

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

# Nobody has more than others.
EVEN: Mapping[str, int] = MappingProxyType({})
Share = tuple[float, float]


class Tenant(NamedTuple):
    """The organization and the project that a request is of."""

    organization_id: str
    project_id: str


class PriorityClasses:
    """Classes of tenants, of which an earlier one goes first."""

    def __init__(self, priorities: Mapping[str, int] = EVEN) -> None:
        """`priorities` are by project, or by organization for its others; 0 for all not in it."""
        self._priorities = priorities
        self._highest = max(0, *priorities.values(), 0)

    def of(self, tenant: Tenant) -> int:
        """Returns how many classes come before the tenant's."""
        known = self._priorities
        own = known.get(tenant.project_id, known.get(tenant.organization_id, 0))
        return self._highest - own


class TenantShares:
    """Requests of tenants; an organization's projects have its part together."""

    def __init__(self, weights: Mapping[str, int] = EVEN) -> None:
        """`weights` are by organization and by project, 1 for those that are not in it."""
        self._weights = weights
        self._organizations = Counter[str]()
        self._tenants = Counter[Tenant]()

    def __iter__(self) -> Iterator[Tenant]:
        return iter(self._tenants)

    def __len__(self) -> int:
        return len(self._tenants)

    def add(self, tenant: Tenant, number: int) -> None:
        """Counts so many more requests, or fewer."""
        self._tenants[tenant] += number
        self._organizations[tenant.organization_id] += number
        if not self._tenants[tenant]:
            del self._tenants[tenant]
            if not self._organizations[tenant.organization_id]:
                del self._organizations[tenant.organization_id]

    def number(self, tenant: Tenant) -> int:
        """Returns the tenant's own requests."""
        return self._tenants[tenant]

    @property
    def total(self) -> int:
        """The requests of all tenants."""
        return self._organizations.total()

    def of(self, tenant: Tenant, more: int = 0) -> Share:
        """Returns the organization's requests for its weight, then the project's, `more` added."""
        organization, project = tenant
        weight = self._weights.get
        return (
            (self._organizations[organization] + more) / weight(organization, 1),
            (self._tenants[tenant] + more) / weight(project, 1),
        )
