"""/v1/organization/workload_identity_providers, and the federation rules below.

May import what `openai_admin` may, and its modules of rendering.
"""

from windlass.gateway.openai_admin.workload_identity.providers import workload_providers_router
from windlass.gateway.openai_admin.workload_identity.rules import federation_rules_router

__all__ = ["federation_rules_router", "workload_providers_router"]
