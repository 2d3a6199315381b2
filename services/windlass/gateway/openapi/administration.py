"""Responses of OpenAI's administration API, and of questions about permissions."""

from windlass.gateway.openapi.audit_logs import audit_log
from windlass.gateway.openapi.certificates import CERTIFICATE_RESPONSES, CERTIFICATE_SCHEMAS
from windlass.gateway.openapi.messages import Schema, nullable, obj
from windlass.gateway.openapi.objects import COUNT, FLAG, TEXT, deleted, kind, listed, page, ref
from windlass.gateway.openapi.workload_identity import RESPONSES, SCHEMAS

_PROJECT = obj(
    {
        "id": TEXT,
        "object": kind("organization.project"),
        "name": TEXT,
        "created_at": COUNT,
        "archived_at": nullable(COUNT),
        "status": {"type": "string", "enum": ["active", "archived"]},
        "external_key_id": nullable(TEXT),
        "residency": nullable(TEXT),
    }
)
_USER = {"id": TEXT, "name": TEXT, "email": nullable(TEXT), "role": TEXT, "added_at": COUNT}
_PROJECT_USER = obj({"object": kind("organization.project.user"), **_USER})
_ORGANIZATION_USER = obj({"object": kind("organization.user"), **_USER, "is_service_account": FLAG})
_SERVICE_ACCOUNT = obj(
    {
        "id": TEXT,
        "object": kind("organization.project.service_account"),
        "name": TEXT,
        "role": TEXT,
        "created_at": COUNT,
    }
)
_ACCOUNT_KEY = obj(
    {
        "id": TEXT,
        "object": kind("organization.project.service_account.api_key"),
        "name": TEXT,
        "value": TEXT,
        "created_at": COUNT,
        "expires_at": nullable(COUNT),
    }
)
_KEY: dict[str, Schema] = {
    "id": TEXT,
    "name": TEXT,
    "redacted_value": TEXT,
    "created_at": COUNT,
    "last_used_at": nullable(COUNT),
    "expires_at": nullable(COUNT),
}
_OWNER: dict[str, Schema] = {"id": TEXT, "name": TEXT, "role": TEXT, "created_at": COUNT}
_PROJECT_KEY = obj(
    {
        "object": kind("organization.project.api_key"),
        **_KEY,
        "owner": obj(
            {
                "type": {"type": "string", "enum": ["user", "service_account"]},
                "user": obj({**_OWNER, "email": TEXT}),
                "service_account": obj(_OWNER),
            },
            optional=("user", "service_account"),
        ),
        "owner_project_access": {"type": "string", "enum": ["active", "inactive"]},
    }
)
_ADMIN_KEY = obj(
    {
        "object": kind("organization.admin_api_key"),
        **_KEY,
        "owner": obj({**_OWNER, "type": kind("user"), "object": kind("organization.user")}),
    }
)
_EXTERNAL_KEY = {
    "object": kind("organization.external_key"),
    "id": TEXT,
    "name": TEXT,
    "created_at": COUNT,
    "purpose": kind("ekm"),
    "workspace_id": TEXT,
    "api_project_ids": listed(TEXT),
    "type": {"type": "string", "enum": ["aws", "vault", "pkcs11"]},
}
# Those of its type.
_EXTERNAL_KEY_PARTS: dict[str, Schema] = {
    "kms_arn": TEXT,
    "role_arn": TEXT,
    "external_id": TEXT,
    "address": TEXT,
    "mount": TEXT,
    "key": TEXT,
    "namespace": TEXT,
    "token_name": TEXT,
    "key_label": TEXT,
}
_GROUP: dict[str, Schema] = {
    "id": TEXT,
    "name": TEXT,
    "created_at": COUNT,
    "is_scim_managed": FLAG,
}
_ROLE: dict[str, Schema] = {
    "id": TEXT,
    "name": TEXT,
    "description": nullable(TEXT),
    "permissions": listed(TEXT),
    "predefined_role": FLAG,
    "resource_type": {"type": "string", "enum": ["api.organization", "api.project"]},
}
_HELD_ROLE = obj(
    {
        **_ROLE,
        "created_at": COUNT,
        "created_by": nullable(TEXT),
        "updated_at": COUNT,
        "assignment_sources": listed(obj({"principal_id": TEXT, "principal_type": TEXT})),
        "metadata": nullable(obj({"ends_at": COUNT})),
    }
)
_GROUP_USER = {"id": TEXT, "name": TEXT, "email": nullable(TEXT)}
_HOLDERS = {
    "user": {"user": ref("OrganizationUser")},
    "group": {
        "group": obj(
            {
                "id": TEXT,
                "object": kind("group"),
                "name": TEXT,
                "created_at": COUNT,
                "scim_managed": FLAG,
            }
        )
    },
}

ADMINISTRATION: dict[str, Schema] = {
    "OrganizationProject": _PROJECT,
    "OrganizationUser": _ORGANIZATION_USER,
    "ProjectUser": _PROJECT_USER,
    "ServiceAccount": _SERVICE_ACCOUNT,
    "ProjectApiKey": _PROJECT_KEY,
    "AdminApiKey": _ADMIN_KEY,
    "ExternalKey": obj(
        {**_EXTERNAL_KEY, **_EXTERNAL_KEY_PARTS}, optional=tuple(_EXTERNAL_KEY_PARTS)
    ),
    "Group": obj({**_GROUP, "group_type": kind("group")}),
    "GroupUser": obj(_GROUP_USER),
    "Role": obj({"object": kind("role"), **_ROLE}),
    "HeldRole": _HELD_ROLE,
    "ProjectGroup": obj(
        {
            "object": kind("project.group"),
            "project_id": TEXT,
            "group_id": TEXT,
            "group_name": TEXT,
            "group_type": kind("group"),
            "created_at": COUNT,
        }
    ),
    "ModelPermissions": obj(
        {
            "object": kind("project.model_permissions"),
            "mode": {"type": "string", "enum": ["allow_list", "deny_list"]},
            "model_ids": listed(TEXT),
        }
    ),
    "HostedToolPermissions": obj(
        {
            name: obj({"enabled": {"const": False}})
            for name in (
                "code_interpreter",
                "file_search",
                "image_generation",
                "mcp",
                "web_search",
            )
        }
    ),
    "AuditLog": audit_log(),
    "PermissionHolder": obj({"id": TEXT, "by": listed(TEXT)}),
    **CERTIFICATE_SCHEMAS,
    **SCHEMAS,
}


def _next_page(name: str) -> Schema:
    """A page whose `next` is the cursor of what follows."""
    return obj(
        {
            "object": kind("list"),
            "data": listed(ref(name)),
            "has_more": FLAG,
            "next": nullable(TEXT),
        }
    )


def _of_roles() -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for scope in ("organization", "project"):
        found |= {
            f"create_{scope}_role": ref("Role"),
            f"list_{scope}_roles": _next_page("Role"),
            f"get_{scope}_role": ref("Role"),
            f"update_{scope}_role": ref("Role"),
            f"delete_{scope}_role": deleted("role.deleted"),
        }
        for holder, shown in _HOLDERS.items():
            name = f"{scope}_{holder}"
            given = {"object": kind(f"{holder}.role"), "role": ref("Role"), **shown}
            gone = {"object": kind(f"{holder}.role.deleted"), "deleted": {"const": True}}
            found |= {
                f"give_{name}_role": obj(given),
                f"list_{name}_roles": _next_page("HeldRole"),
                f"get_{name}_role": ref("HeldRole"),
                f"take_{name}_role": obj(gone),
            }
    return found


def _retention(scope: str) -> Schema:
    types = {"organization": ["zero_data_retention"], "project": ["organization_default"]}
    return obj(
        {
            "object": kind(f"{scope}.data_retention"),
            "type": {"type": "string", "enum": types[scope]},
        }
    )


ADMINISTRATION_RESPONSES: dict[str, Schema] = {
    "check_permission": obj(
        {"object": kind("permission"), "id": TEXT, "allowed": FLAG, "reason": nullable(TEXT)}
    ),
    "list_holders": page("PermissionHolder"),
    "create_organization_project": ref("OrganizationProject"),
    "list_organization_projects": page("OrganizationProject"),
    "get_organization_project": ref("OrganizationProject"),
    "update_organization_project": ref("OrganizationProject"),
    "archive_organization_project": ref("OrganizationProject"),
    "create_project_user": ref("ProjectUser"),
    "list_project_users": page("ProjectUser"),
    "get_project_user": ref("ProjectUser"),
    "update_project_user": ref("ProjectUser"),
    "delete_project_user": deleted("organization.project.user.deleted"),
    "create_service_account": obj({**_SERVICE_ACCOUNT["properties"], "api_key": _ACCOUNT_KEY}),
    "list_service_accounts": page("ServiceAccount"),
    "get_service_account": ref("ServiceAccount"),
    "update_service_account": ref("ServiceAccount"),
    "delete_service_account": deleted("organization.project.service_account.deleted"),
    "create_service_account_key": _ACCOUNT_KEY,
    "list_project_api_keys": page("ProjectApiKey"),
    "get_project_api_key": ref("ProjectApiKey"),
    "update_project_api_key": ref("ProjectApiKey"),
    "delete_project_api_key": deleted("organization.project.api_key.deleted"),
    "add_project_group": ref("ProjectGroup"),
    "list_project_groups": _next_page("ProjectGroup"),
    "get_project_group": ref("ProjectGroup"),
    "remove_project_group": obj(
        {"object": kind("project.group.deleted"), "deleted": {"const": True}}
    ),
    "get_model_permissions": ref("ModelPermissions"),
    "update_model_permissions": ref("ModelPermissions"),
    "delete_model_permissions": obj(
        {"object": kind("project.model_permissions.deleted"), "deleted": {"const": True}}
    ),
    "get_hosted_tool_permissions": ref("HostedToolPermissions"),
    "update_hosted_tool_permissions": ref("HostedToolPermissions"),
    "get_organization_data_retention": _retention("organization"),
    "update_organization_data_retention": _retention("organization"),
    "get_project_data_retention": _retention("project"),
    "update_project_data_retention": _retention("project"),
    "list_organization_users": page("OrganizationUser"),
    "get_organization_user": ref("OrganizationUser"),
    "update_organization_user": ref("OrganizationUser"),
    "delete_organization_user": deleted("organization.user.deleted"),
    "create_admin_api_key": obj({**_ADMIN_KEY["properties"], "value": TEXT}),
    "list_admin_api_keys": page("AdminApiKey"),
    "get_admin_api_key": ref("AdminApiKey"),
    "delete_admin_api_key": deleted("organization.admin_api_key.deleted"),
    "create_external_key": ref("ExternalKey"),
    "list_external_keys": page("ExternalKey"),
    "get_external_key": ref("ExternalKey"),
    "delete_external_key": ref("ExternalKey"),
    "validate_external_key": obj({"status": kind("valid")}),
    "create_group": ref("Group"),
    "list_groups": _next_page("Group"),
    "get_group": ref("Group"),
    "update_group": obj(_GROUP),
    "delete_group": deleted("group.deleted"),
    "add_group_user": obj({"object": kind("group.user"), "group_id": TEXT, "user_id": TEXT}),
    "list_group_users": _next_page("GroupUser"),
    "get_group_user": obj(
        {
            **_GROUP_USER,
            "is_service_account": FLAG,
            "picture": {"type": "null"},
            "user_type": kind("user"),
        }
    ),
    "remove_group_user": obj({"object": kind("group.user.deleted"), "deleted": {"const": True}}),
    "list_organization_audit_logs": page("AuditLog"),
    **_of_roles(),
    **CERTIFICATE_RESPONSES,
    **RESPONSES,
}
