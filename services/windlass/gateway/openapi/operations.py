"""Responses of each operation, by the name of its function."""

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import feeds_pb2, inference_pb2
from windlass.api.jobs.v1 import jobs_pb2
from windlass.api.rbac.v1 import rbac_pb2
from windlass.api.sessions.v1 import sessions_pb2
from windlass.api.users.v1 import erasures_pb2, exports_pb2, networks_pb2, users_pb2
from windlass.gateway.openapi import objects as shapes
from windlass.gateway.openapi.administration import ADMINISTRATION, ADMINISTRATION_RESPONSES
from windlass.gateway.openapi.elevations import ELEVATION_RESPONSES, ELEVATIONS
from windlass.gateway.openapi.messages import Schema, message, nullable, obj
from windlass.gateway.openapi.objects import COUNT, FLAG, TEXT, deleted, kind, page, ref
from windlass.gateway.openapi.sign_in import SIGN_IN, SIGN_IN_RESPONSES

_CLUSTER = message(clusters_pb2.Cluster.DESCRIPTOR, "cluster")
_HELD = obj({"id": TEXT, "object": kind("organization"), "held": FLAG})
_KEY = message(users_pb2.ApiKey.DESCRIPTOR, "api_key")
_KEY = obj(
    {
        **{name: one for name, one in _KEY["properties"].items() if name != "redacted"},
        "redacted_value": TEXT,
    }
)
_AUDIT_DESTINATION = message(rbac_pb2.AuditDestination.DESCRIPTOR, "audit_destination")
_DIRECTORY = obj(
    {
        "object": {"const": "organization.directory"},
        "enabled": {"type": "boolean"},
        "role": nullable(TEXT),
        "created_at": nullable(COUNT),
        "updated_at": nullable(COUNT),
    }
)
_WEBHOOK = message(jobs_pb2.Webhook.DESCRIPTOR, "webhook_endpoint")
_ASSIGNMENT = clusters_pb2.Assignment.DESCRIPTOR

COMPONENTS: dict[str, Schema] = {
    "Error": shapes.ERROR,
    "File": shapes.FILE,
    "Model": shapes.MODEL,
    "FineTuningJob": shapes.JOB,
    "FineTuningJobEvent": shapes.EVENT,
    "FineTuningJobCheckpoint": shapes.CHECKPOINT,
    "FineTuningJobExplanation": shapes.EXPLANATION,
    "CheckpointPermission": shapes.PERMISSION,
    "ModelFetch": shapes.FETCH,
    "ModelImport": shapes.IMPORT,
    "WebhookEndpoint": _WEBHOOK,
    "Runtime": shapes.RUNTIME,
    "Usage": shapes.USAGE,
    "Organization": message(users_pb2.Organization.DESCRIPTOR, "organization"),
    "Project": message(
        users_pb2.Project.DESCRIPTOR,
        "project",
        status={"type": "string", "enum": ["active", "archived"]},
    ),
    "Erasure": message(erasures_pb2.Erasure.DESCRIPTOR, "erasure"),
    "Export": message(exports_pb2.Export.DESCRIPTOR, "export"),
    "AllowedNetworks": message(networks_pb2.AllowedNetworks.DESCRIPTOR, "organization.networks"),
    "Member": message(users_pb2.Member.DESCRIPTOR, "member", id=TEXT),
    "Secret": message(users_pb2.Secret.DESCRIPTOR, "secret", id=TEXT),
    "ApiKey": _KEY,
    "AffectedApiKey": obj({**_KEY["properties"], "becomes": {"type": ["string", "null"]}}),
    "Quota": message(users_pb2.Quota.DESCRIPTOR, "quota", id=TEXT),
    "Me": message(users_pb2.WhoAmIResponse.DESCRIPTOR, "me"),
    "AuditDestination": _AUDIT_DESTINATION,
    "AuditRetention": message(rbac_pb2.AuditRetention.DESCRIPTOR, "audit_retention"),
    "AuditEvent": message(rbac_pb2.AuditEvent.DESCRIPTOR, "audit_event"),
    "AuditVerification": message(
        rbac_pb2.VerifyAuditEventsResponse.DESCRIPTOR, "audit_verification"
    ),
    "AuditCheckpoint": message(rbac_pb2.AuditCheckpoint.DESCRIPTOR, "audit_checkpoint", id=TEXT),
    "Cluster": _CLUSTER,
    "ClusterAccess": message(sessions_pb2.Access.DESCRIPTOR, "cluster.access"),
    "ClusterAssignment": message(_ASSIGNMENT, "cluster.assignment", id=TEXT),
    "Engine": message(inference_pb2.Engine.DESCRIPTOR, "engine"),
    "Serving": message(inference_pb2.Serving.DESCRIPTOR, "serving", id=TEXT),
    "EngineTraining": message(inference_pb2.EngineTraining.DESCRIPTOR, "engine.training"),
    "EngineFeed": message(
        feeds_pb2.Feed.DESCRIPTOR, "engine.feed", grader={"type": ["object", "null"]}
    ),
    "Prefetch": message(inference_pb2.Prefetch.DESCRIPTOR, "prefetch"),
    "Stack": message(inference_pb2.Stack.DESCRIPTOR, "stack", id=TEXT),
    **ADMINISTRATION,
    **SIGN_IN,
    **ELEVATIONS,
}

_WITH_KEY = obj({**_CLUSTER["properties"], "registration_key": TEXT})
_GRADE: Schema = {
    "type": "object",
    "properties": {
        "reward": {"type": "number"},
        "sub_rewards": {"type": "object", "additionalProperties": {"type": "number"}},
        "metadata": {"type": "object"},
        "model_grader_token_usage_per_model": {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": COUNT},
        },
    },
    "required": ["reward", "sub_rewards", "metadata", "model_grader_token_usage_per_model"],
}

RESPONSES: dict[str, Schema] = {
    "list_files": page("File"),
    "retrieve_file": ref("File"),
    "delete_file": deleted("file"),
    "list_models": page("Model"),
    "retrieve_model": ref("Model"),
    "delete_model": deleted("model"),
    "create_import": ref("ModelImport"),
    "complete_import": ref("Model"),
    "create_fetch": ref("ModelFetch"),
    "list_fetches": page("ModelFetch"),
    "retrieve_fetch": ref("ModelFetch"),
    "cancel_fetch": ref("ModelFetch"),
    "list_jobs": page("FineTuningJob"),
    "retrieve_job": ref("FineTuningJob"),
    "cancel_job": ref("FineTuningJob"),
    "pause_job": ref("FineTuningJob"),
    "resume_job": ref("FineTuningJob"),
    "explain_job": ref("FineTuningJobExplanation"),
    "list_events": page("FineTuningJobEvent"),
    "list_checkpoints": page("FineTuningJobCheckpoint"),
    "create_permissions": page("CheckpointPermission"),
    "list_permissions": page("CheckpointPermission"),
    "delete_permission": deleted("checkpoint.permission"),
    "validate_grader": obj({"grader": {"type": "object"}}),
    "run_grader": _GRADE,
    "create_webhook": obj({**_WEBHOOK["properties"], "signing_secret": TEXT}),
    "list_webhooks": page("WebhookEndpoint"),
    "retrieve_webhook": ref("WebhookEndpoint"),
    "delete_webhook": deleted("webhook_endpoint.deleted"),
    "test_webhook": obj(
        {
            "object": {"const": "webhook_endpoint.test"},
            "webhook_endpoint_id": TEXT,
            "event_type": TEXT,
            "status_code": COUNT,
            "success": {"const": True},
        }
    ),
    "list_runtimes": page("Runtime"),
    "who_am_i": ref("Me"),
    "create_organization": ref("Organization"),
    "list_organizations": page("Organization"),
    "get_organization": ref("Organization"),
    "delete_organization": ref("Erasure"),
    "undelete_organization": ref("Erasure"),
    "hold_organization": _HELD,
    "release_organization": _HELD,
    "get_allowed_networks": ref("AllowedNetworks"),
    "put_allowed_networks": ref("AllowedNetworks"),
    "delete_project": ref("Erasure"),
    "undelete_project": ref("Erasure"),
    "list_erasures": page("Erasure"),
    "get_erasure": ref("Erasure"),
    "create_export": ref("Export"),
    "list_exports": page("Export"),
    "get_export": ref("Export"),
    "create_project": ref("Project"),
    "list_projects": page("Project"),
    "get_project": ref("Project"),
    "archive_project": ref("Project"),
    "put_member": ref("Member"),
    "list_members": page("Member"),
    "remove_member": obj(
        {
            **deleted("member")["properties"],
            "ended_keys": {"type": "array", "items": ref("ApiKey")},
            "has_more": {"type": "boolean"},
        }
    ),
    "list_affected_keys": page("AffectedApiKey"),
    "create_api_key": obj({**_KEY["properties"], "value": TEXT}),
    "list_api_keys": page("ApiKey"),
    "rotate_api_key": obj({**_KEY["properties"], "value": TEXT}),
    "update_api_key": ref("ApiKey"),
    "get_key_policy": message(users_pb2.KeyPolicy.DESCRIPTOR, "key_policy"),
    "put_key_policy": message(
        users_pb2.KeyPolicy.DESCRIPTOR,
        "key_policy",
        ended_keys={"type": "array", "items": ref("ApiKey")},
        has_more={"type": "boolean"},
    ),
    "get_directory": _DIRECTORY,
    "put_directory": _DIRECTORY,
    "delete_directory": obj(
        {"object": {"const": "organization.directory.deleted"}, "deleted": {"const": True}}
    ),
    "revoke_api_key": obj({**_KEY["properties"], "deleted": {"const": True}}),
    "list_secrets": page("Secret"),
    "put_secret": ref("Secret"),
    "delete_secret": deleted("secret"),
    "list_quotas": page("Quota"),
    "put_quota": page("Quota"),
    "delete_quota": page("Quota"),
    "query_usage": ref("Usage"),
    "create_audit_destination": obj(
        {**_AUDIT_DESTINATION["properties"], "signing_secret": nullable(TEXT)}
    ),
    "list_audit_destinations": page("AuditDestination"),
    "get_audit_destination": ref("AuditDestination"),
    "delete_audit_destination": deleted("audit_destination.deleted"),
    "list_audit_events": page("AuditEvent"),
    "verify_audit_events": ref("AuditVerification"),
    "list_audit_checkpoints": obj(
        {
            **page("AuditCheckpoint")["properties"],
            "public_key": {"type": "object"},
            "dropped": nullable(TEXT),
        }
    ),
    "get_audit_retention": ref("AuditRetention"),
    "put_audit_retention": ref("AuditRetention"),
    "register_cluster": _WITH_KEY,
    "rekey_cluster": _WITH_KEY,
    "list_clusters": page("Cluster"),
    "get_cluster": ref("Cluster"),
    "update_cluster": ref("Cluster"),
    "unregister_cluster": deleted("cluster"),
    "get_inventory": {
        "type": "object",
        "properties": {"id": TEXT, "object": {"const": "cluster.inventory"}},
        "required": ["id", "object", "pending", "missing"],
    },
    "get_quota": {
        "type": "object",
        "properties": {"id": TEXT, "object": {"const": "cluster.quota"}},
        "required": ["id", "object", "spec"],
    },
    "list_engines": page("Engine"),
    "list_servings": page("Serving"),
    "put_serving": ref("Serving"),
    "retrieve_serving": ref("Serving"),
    "delete_serving": deleted("serving"),
    "list_engine_trainings": page("EngineTraining"),
    "retrieve_engine_training": ref("EngineTraining"),
    "cancel_engine_training": ref("EngineTraining"),
    "train_engine": ref("EngineTraining"),
    "checkpoint_engine": ref("EngineTraining"),
    "list_feeds": page("EngineFeed"),
    "retrieve_feed": ref("EngineFeed"),
    "put_feed": ref("EngineFeed"),
    "delete_feed": deleted("engine.feed"),
    "list_prefetches": page("Prefetch"),
    "put_prefetch": page("Prefetch"),
    "list_stacks": page("Stack"),
    "put_stack": ref("Stack"),
    "delete_stack": deleted("stack"),
    "adopt_model": ref("Model"),
    "list_assignments": page("ClusterAssignment"),
    "list_assignments_of_cluster": page("ClusterAssignment"),
    "put_assignment": ref("ClusterAssignment"),
    "delete_assignment": deleted("cluster.assignment"),
    "create_access": ref("ClusterAccess"),
    **ADMINISTRATION_RESPONSES,
    **SIGN_IN_RESPONSES,
    **ELEVATION_RESPONSES,
}
RESPONSES["change_quota"] = RESPONSES["get_quota"]
