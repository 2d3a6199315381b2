"""Responses of identity providers and federation rules, and the exchange of tokens."""

from typing import Any

from windlass.gateway.openai.token_exchange import (
    ACCESS_TOKEN,
    GRANT,
    PATH,
    SUBJECT_TYPES,
)
from windlass.gateway.openapi.messages import Schema, nullable, obj
from windlass.gateway.openapi.objects import COUNT, FLAG, TEXT, deleted, kind, listed, page, ref

_VERIFICATION: Schema = {
    "oneOf": [
        obj({"type": kind("discovery"), "discovery_url": {"type": "null"}}),
        obj({"type": kind("uploaded_jwks"), "jwks": {"type": "object"}}),
    ]
}
_PERMISSIONS: Schema = {
    "oneOf": [
        obj({"type": kind("service_account_default")}),
        obj({"type": kind("restricted"), "scopes": listed(TEXT)}),
    ]
}
_COMMON: dict[str, Schema] = {
    "id": TEXT,
    "description": nullable(TEXT),
    "enabled": FLAG,
    "created_at": COUNT,
    "updated_at": COUNT,
}
SCHEMAS: dict[str, Schema] = {
    "WorkloadIdentityProvider": obj(
        {
            **_COMMON,
            "object": kind("organization.workload_identity_provider"),
            "name": TEXT,
            "type": kind("oidc"),
            "issuer": TEXT,
            "audience": TEXT,
            "verification": _VERIFICATION,
            "attribute_transformations": listed(obj({"attribute": TEXT, "expression": TEXT})),
        }
    ),
    "FederationRule": obj(
        {
            **_COMMON,
            "object": kind("organization.workload_identity_federation_rule"),
            "workload_identity_provider_id": TEXT,
            "project_id": TEXT,
            "service_account_id": TEXT,
            "name": nullable(TEXT),
            "attribute_matchers": {
                "type": "object",
                "additionalProperties": {"type": ["string", "boolean", "number"]},
            },
            "permissions": _PERMISSIONS,
            "accepts_bearer": FLAG,
        },
        optional=("accepts_bearer",),
    ),
}
RESPONSES: dict[str, Schema] = {
    "create_workload_identity_provider": ref("WorkloadIdentityProvider"),
    "list_workload_identity_providers": page("WorkloadIdentityProvider"),
    "get_workload_identity_provider": ref("WorkloadIdentityProvider"),
    "update_workload_identity_provider": ref("WorkloadIdentityProvider"),
    "delete_workload_identity_provider": deleted("organization.workload_identity_provider.deleted"),
    "create_federation_rule": ref("FederationRule"),
    "list_federation_rules": page("FederationRule"),
    "get_federation_rule": ref("FederationRule"),
    "update_federation_rule": ref("FederationRule"),
    "delete_federation_rule": deleted("organization.workload_identity_federation_rule.deleted"),
}
_REQUEST: Schema = {
    **obj(
        {
            "grant_type": {"type": "string", "enum": [GRANT]},
            "subject_token": TEXT,
            "subject_token_type": {"type": "string", "enum": sorted(SUBJECT_TYPES)},
            "identity_provider_id": TEXT,
            "service_account_id": TEXT,
            "requested_token_type": {"type": "string", "enum": [ACCESS_TOKEN]},
        },
        optional=("requested_token_type",),
    ),
    "additionalProperties": False,
}
_ERROR = obj({"error": TEXT, "error_description": TEXT})


def paths() -> dict[str, Any]:
    """The path at which anybody exchanges a token."""
    given = obj(
        {
            "access_token": TEXT,
            "issued_token_type": kind(ACCESS_TOKEN),
            "token_type": kind("Bearer"),
            "expires_in": COUNT,
        }
    )
    forms = ("application/json", "application/x-www-form-urlencoded")
    operation = {
        "tags": ["administration"],
        "operationId": "exchange_token",
        "summary": "Exchanges a workload's token for one of a service account.",
        "security": [],
        "requestBody": {
            "required": True,
            "content": {form: {"schema": _REQUEST} for form in forms},
        },
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": given}}},
            **{
                status: {
                    "description": "An error of RFC 6749.",
                    "content": {"application/json": {"schema": _ERROR}},
                }
                for status in ("400", "408", "429")
            },
        },
    }
    return {PATH: {"post": operation}}
