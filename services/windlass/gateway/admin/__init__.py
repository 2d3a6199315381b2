"""Routes that Windlass adds to OpenAI's API: tenants, keys, clusters, accounting.

May import the contract, the kernel, and of the gateway how `openai` renders and the modules of
parameters.
"""

from windlass.gateway.admin.accounting import accounting_router
from windlass.gateway.admin.api_keys import api_keys_router
from windlass.gateway.admin.assignments import assignments_router
from windlass.gateway.admin.cluster_access import cluster_access_router
from windlass.gateway.admin.clusters import clusters_router
from windlass.gateway.admin.members import members_router
from windlass.gateway.admin.prefetches import prefetches_router
from windlass.gateway.admin.quota import quota_router
from windlass.gateway.admin.quotas import quotas_router
from windlass.gateway.admin.runtimes import runtimes_router
from windlass.gateway.admin.secrets import secrets_router
from windlass.gateway.admin.servings import servings_router
from windlass.gateway.admin.stacks import stacks_router
from windlass.gateway.admin.tenants import tenants_router

ROUTERS = (
    tenants_router,
    members_router,
    api_keys_router,
    secrets_router,
    # Before clusters, whose ids would take its name.
    assignments_router,
    clusters_router,
    quota_router,
    quotas_router,
    cluster_access_router,
    accounting_router,
    runtimes_router,
    servings_router,
    prefetches_router,
    stacks_router,
)
