"""Routes that Windlass adds to OpenAI's API: tenants, keys, clusters, accounting.

May import the contract, the kernel, and of the gateway how `openai` renders and the modules of
parameters.
"""

from windlass.gateway.admin.accounting import accounting_router
from windlass.gateway.admin.api_keys import api_keys_router, key_policies_router
from windlass.gateway.admin.assignments import assignments_router
from windlass.gateway.admin.audit.destinations import audit_destinations_router
from windlass.gateway.admin.audit.retention import audit_retention_router
from windlass.gateway.admin.cluster_access import cluster_access_router
from windlass.gateway.admin.clusters import clusters_router
from windlass.gateway.admin.engines.feeds import feeds_router
from windlass.gateway.admin.engines.trainings import engine_trainings_router
from windlass.gateway.admin.members import members_router
from windlass.gateway.admin.organizations.erasures import erasures_router
from windlass.gateway.admin.organizations.exports import exports_router
from windlass.gateway.admin.organizations.networks import networks_router
from windlass.gateway.admin.organizations.tenants import permissions_router, tenants_router
from windlass.gateway.admin.prefetches import prefetches_router
from windlass.gateway.admin.quota import quota_router
from windlass.gateway.admin.quotas import quotas_router
from windlass.gateway.admin.roles.elevations import (
    organization_elevations_router,
    project_elevations_router,
)
from windlass.gateway.admin.roles.previews import role_previews_router
from windlass.gateway.admin.runtimes import runtimes_router
from windlass.gateway.admin.secrets import secrets_router
from windlass.gateway.admin.servings import servings_router
from windlass.gateway.admin.stacks import stacks_router

ROUTERS = (
    tenants_router,
    erasures_router,
    exports_router,
    networks_router,
    members_router,
    permissions_router,
    role_previews_router,
    organization_elevations_router,
    project_elevations_router,
    api_keys_router,
    key_policies_router,
    secrets_router,
    # Before clusters, whose ids would take its name.
    assignments_router,
    clusters_router,
    quota_router,
    quotas_router,
    cluster_access_router,
    accounting_router,
    audit_destinations_router,
    audit_retention_router,
    runtimes_router,
    servings_router,
    engine_trainings_router,
    feeds_router,
    prefetches_router,
    stacks_router,
)
