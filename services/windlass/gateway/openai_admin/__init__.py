"""OpenAI's administration API, as openai-python's `client.admin` calls it.

May import the contract, the kernel, and of the gateway how `openai` renders and the modules of
parameters. What OpenAI has and this installation has not is refused by its name.
"""

from windlass.gateway.openai_admin.admin_keys import admin_keys_router
from windlass.gateway.openai_admin.audit.router import audit_logs_router
from windlass.gateway.openai_admin.certificates import (
    certificates_router,
    project_certificates_router,
)
from windlass.gateway.openai_admin.external_keys import external_keys_router
from windlass.gateway.openai_admin.groups import groups_router
from windlass.gateway.openai_admin.project_groups import project_groups_router
from windlass.gateway.openai_admin.project_keys import project_keys_router
from windlass.gateway.openai_admin.project_settings.fixed import fixed_settings_router
from windlass.gateway.openai_admin.project_settings.model_permissions import (
    model_permissions_router,
)
from windlass.gateway.openai_admin.project_users import project_users_router
from windlass.gateway.openai_admin.projects import organization_projects_router
from windlass.gateway.openai_admin.roles.router import (
    organization_roles_router,
    project_roles_router,
)
from windlass.gateway.openai_admin.service_accounts import service_accounts_router
from windlass.gateway.openai_admin.users import organization_users_router
from windlass.gateway.openai_admin.workload_identity import (
    federation_rules_router,
    workload_providers_router,
)

ROUTERS = (
    organization_projects_router,
    project_users_router,
    project_groups_router,
    service_accounts_router,
    project_keys_router,
    model_permissions_router,
    fixed_settings_router,
    organization_users_router,
    admin_keys_router,
    external_keys_router,
    certificates_router,
    project_certificates_router,
    groups_router,
    organization_roles_router,
    project_roles_router,
    audit_logs_router,
    workload_providers_router,
    federation_rules_router,
)
"""Routes under `/v1/organization`, and those of a project's roles."""
