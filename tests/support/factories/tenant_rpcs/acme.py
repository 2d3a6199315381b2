"""One thing of every kind that a project of Acme's has, so that others may ask for it."""

import time
from typing import Any

import httpx
from tests.support.clients.wire import Wire
from tests.support.environments.client_certificates import made
from tests.support.factories.tenant_rpcs.names import Names
from tests.support.factories.tenants import Caller, Tenants
from tests.support.processes.front_door import (
    GOOD,
    MODEL,
    Front,
    import_model,
    jsonl,
    promise,
    upload,
)
from tests.support.waiting import wait_until

from windlass.api.clusters.v1 import clusters_pb2 as clusters
from windlass.api.files.v1 import files_pb2 as files
from windlass.api.usage.v1 import usage_pb2 as usage

SECRET = "acme_wandb"
PRIVATE = "acme-private"
USER = "ann@acme"


def make_names(tenants: Tenants, wire: Wire, front: Front) -> Names:
    """Makes it all; returns the names."""
    member = tenants.member
    found = _owned(tenants)
    found["elevation"] = _elevation(member, found["role"])
    for one in (tenants.owner, tenants.stranger):
        with one.http() as http:
            _json(http.put("/v1/organization/directory", json={}))
    found |= _trained(member) | _administered(tenants)
    cluster = _place(tenants, wire)
    request = files.CreateUploadRequest(filename="acme.txt", purpose="user_data")
    method = "/windlass.api.files.v1.FilesService/CreateUpload"
    found["upload"] = wire.call(method, request, wire.credentials(member))[0].upload_id
    _use(wire, member)
    return Names(
        organization=member.organization_id,
        project=member.project_id,
        model=PRIVATE,
        key=member.key_id,
        secret=SECRET,
        user=USER,
        mail_domain="owned.example",
        **found,
        training="train-acme",
        **_of_rows(front, member, cluster),
    )


def _owned(tenants: Tenants) -> dict[str, str]:
    """What the project's owner makes."""
    path = f"/v1/projects/{tenants.member.project_id}"
    with tenants.admin.http() as http:
        _json(import_model(http, "shared", MODEL, for_everyone=True))
    with tenants.project_owner.http() as http:
        _json(import_model(http, PRIVATE, MODEL))
        _json(http.put(f"/v1/servings/{PRIVATE}", json={"min_replicas": 1}))
        opened = _json(
            http.post("/v1/models/imports", json={"id": "open", "files": promise(MODEL)})
        )
        wish = {"source": "hf://acme/plans", "id": "acme-plans"}
        fetch = _json(http.post("/v1/model_fetches", json=wish))["id"]
        _json(http.put(f"/v1/secrets/{SECRET}", json={"value": "s3cr3t"}))
        told = {"url": "https://hooks.example.com/acme"}
        webhook = _json(http.post("/v1/webhook_endpoints", json=told))["id"]
        body = {"role_name": "keeper", "permissions": ["secrets.write"]}
        role = _json(http.post(f"{path}/roles", json=body))["id"]
        rules = {"askers": "project", "longest_seconds": 3600, "approvals": 1}
        _json(http.put(f"{path}/roles/{role}/elevation", json=rules))
        place = tenants.member.project_id
        member = {"user_id": USER, "role": "project_member", "project_id": place}
        _json(http.put("/v1/members", json=member))
        _json(http.post(f"{path}/users/{USER}/roles", json={"role_id": role}))
    return {"import_": opened["import_id"], "fetch": fetch, "webhook": webhook, "role": role}


def _elevation(member: Caller, role: str) -> str:
    asked = {"role_id": role, "reason": "x", "seconds": 600}
    with member.http() as http:
        path = f"/v1/projects/{member.project_id}/elevations"
        return str(_json(http.post(path, json=asked))["id"])


def _trained(member: Caller) -> dict[str, str]:
    """A file, and a job that waits."""
    client = member.openai()
    file = upload(client, jsonl([GOOD] * 20), name="acme.jsonl")
    job = client.fine_tuning.jobs.create(
        model=PRIVATE, training_file=file.id, metadata={"team": "acme"}, suffix="acme"
    )
    wait_until(lambda: client.fine_tuning.jobs.retrieve(job.id).status == "queued")
    return {"file": file.id, "job": job.id}


def _administered(tenants: Tenants) -> dict[str, str]:
    """What is the organization's, whose administrator has let a workload in."""
    organization = tenants.member.organization_id
    place = {
        "kms_arn": "arn:aws:kms:eu-central-1:123456789012:key/acme",
        "role_arn": "arn:aws:iam::123456789012:role/acme",
        "external_id": organization,
    }
    exported = {"kind": "webhook", "url": "https://hooks.example.com/acme", "from_now": True}
    bodies: dict[str, tuple[str, dict[str, Any]]] = {
        "group": ("organization/groups", {"name": "acme"}),
        "external_key": ("organization/external_keys", {"name": "acme", "type": "aws", **place}),
        "certificate": ("organization/certificates", {"certificate": made("acme").pem}),
        "destination": ("audit_destinations", exported),
        "invite": ("organization/invites", {"role": "reader"}),
    }
    with tenants.admin.http() as http:
        http.headers["OpenAI-Organization"] = organization
        found = {
            kind: str(_json(http.post(f"/v1/{path}", json=body))["id"])
            for kind, (path, body) in bodies.items()
        }
        _json(http.post(f"/v1/organization/groups/{found['group']}/users", json={"user_id": USER}))
        _json(http.post("/v1/organization/mail_domains", json={"name": "owned.example"}))
        return found | _let_in(http, tenants.member.project_id)


def _let_in(http: httpx.Client, project_id: str) -> dict[str, str]:
    """An identity provider, a service account, and the rule that makes one the other."""
    providers, issuer = "/v1/organization/workload_identity_providers", "https://ci.example"
    body = {"name": "acme", "issuer": issuer, "audience": "acme", "type": "oidc"}
    provider = _json(http.post(providers, json=body))["id"]
    accounts = f"/v1/organization/projects/{project_id}/service_accounts"
    account = _json(http.post(accounts, json={"name": "acme"}))["id"]
    wanted = {
        "project_id": project_id,
        "service_account_id": account,
        "attribute_matchers": {"sub": "acme"},
    }
    rule = _json(http.post(f"{providers}/{provider}/federation_rules", json=wanted))["id"]
    return {"workload_provider": provider, "account": account, "rule": rule}


def _place(tenants: Tenants, wire: Wire) -> str:
    """Gives the project a place in a cluster; returns its id."""
    with tenants.admin.http() as http:
        cluster = _json(http.post("/v1/clusters", json={"name": "acme"}))["id"]
    wanted = clusters.Assignment(cluster_id=cluster, project_id=tenants.member.project_id)
    wire.call(
        "/windlass.api.clusters.v1.ClustersService/PutAssignment",
        clusters.PutAssignmentRequest(assignment=wanted),
        wire.credentials(tenants.admin),
    )
    return str(cluster)


def _use(wire: Wire, caller: Caller) -> None:
    record = usage.UsageRecord(
        id=f"use-{caller.key_id}",
        at_ms=int(time.time() * 1000),
        organization_id=caller.organization_id,
        project_id=caller.project_id,
        key_id=caller.key_id,
        model=PRIVATE,
        kind=usage.USAGE_KIND_CHAT,
        input_tokens=7,
    )
    token = (("windlass-service", wire.service.sign_service()),)
    method = "/windlass.api.usage.v1.UsageInternalService/Record"
    wire.call(method, usage.RecordRequest(records=[record]), token)


FEED = (
    "INSERT INTO inference_feeds (id, organization_id, project_id, user_id, key_id, model, key_ids,"
    " grader, least_score, hourly, batch, optimizer, learning_rate, guard, spent, kept, refused,"
    " trained, removed, turned_away, message, created_at, updated_at, due_at, retry_at)"
)


def _of_rows(front: Front, member: Caller, cluster: str) -> dict[str, str]:
    """What needs more than a caller: an agent, an issuer, time."""
    organization, project = member.organization_id, member.project_id
    # As if a cluster had brought it.
    front.rows(
        "INSERT INTO inference_prefetches VALUES"
        " ('pre-acme', %s, %s, %s, %s, 'mv-1', %s, 1, 'ready', '', 2, 2, 1, 1, 2) RETURNING 1",
        *(organization, project, project, PRIVATE, cluster),
    )
    # As if an engine had been trained.
    front.rows(
        "INSERT INTO inference_trainings (id, organization_id, project_id, user_id, key_id, model,"
        " version_id, suffix, mode, digest, body, tokens, total_steps, steps, state, reason,"
        " message, engine_id, cluster_id, checkpoint_model, is_cancelled, is_saved, is_counted,"
        " generation, put_generation, created_at, urls_at, finished_at) VALUES"
        " ('train-acme', %s, %s, 'ann', 'key', %s, 'mv-1', '', 'hogwild', '', '', 9, 1, 1,"
        " 'succeeded', '', '', 'eng-1', %s, '', false, true, true, 2, 2, 1, 1, 2) RETURNING 1",
        *(organization, project, PRIVATE, cluster),
    )
    # As if a project that keeps answers had set it.
    front.rows(
        f"{FEED} VALUES ('feed-acme', %s, %s, 'ann', 'key', %s, '[]', '{{}}', 1, 1, 1, 'sgd', 1,"
        " '', '[]', 2, 1, 0, 0, 1, 'private', 1, 1, 1e12, 0) RETURNING 1",
        *(organization, project, PRIVATE),
    )
    # As if an issuer had answered.
    front.rows(
        "INSERT INTO users_identity_providers VALUES ('idp_acme', %s, 'acme',"
        " 'https://issuer.example', 'windlass', '', '{}', '{}', '', '', '', '{}', true, 1, 1)"
        " RETURNING 1",
        organization,
    )
    # As if a project had been deleted and undone.
    front.rows(
        "INSERT INTO core_erasures (id, organization_id, project_id, project_ids, restores, state,"
        " asked_by, asked_at, erase_at) VALUES ('erasure_acme', %s, 'proj_gone', '{}', '{}',"
        " 'undone', 'ann@acme', 1, 1) RETURNING 1",
        organization,
    )
    # As if its owner had asked for all that is theirs.
    front.rows(
        "INSERT INTO core_exports (id, organization_id, user_id, project_ids, state, asked_by,"
        " asked_at, expires_at) VALUES ('export_acme', %s, '', '{}', 'ready', 'ann@acme', 1, %s)"
        " RETURNING 1",
        *(organization, 2**40),
    )
    found = {"provider": "idp_acme", "erasure": "erasure_acme", "export": "export_acme"}
    return found | _tuned(front, member)


def _tuned(front: Front, member: Caller) -> dict[str, str]:
    """A run as if a client had trained it."""
    session = "session-" + "a" * 24
    run, sampler, tenant = f"{session}:train:0", f"{session}:sample:0", (
        member.organization_id, member.project_id,
    )  # fmt: skip
    front.rows(
        "INSERT INTO tuning_sessions (id, organization_id, project_id, user_id, tags,"
        " user_metadata, sdk_version, display_name, created_at, heartbeat_at)"
        " VALUES (%s, %s, %s, %s, '[]', '{}', '', '', 1, %s) RETURNING 1",
        *(session, *tenant, USER, 2**40),
    )
    front.rows(
        "INSERT INTO tuning_runs (id, organization_id, project_id, user_id, session_id,"
        " base_model, settings, user_metadata, created_at, last_request_at)"
        " VALUES (%s, %s, %s, %s, %s, 'toy', '{\"rank\": 8}', '{}', 1, 1) RETURNING 1",
        *(run, *tenant, USER, session),
    )
    front.rows(
        "INSERT INTO tuning_checkpoints (id, organization_id, project_id, run_id, base_model,"
        " settings, name, is_for_sampler, user_metadata, state, created_at)"
        " VALUES ('ckpt_acme', %s, %s, %s, 'toy', '{\"rank\": 8}', 'acme', false, '{}', 'ready',"
        " 1) RETURNING 1",
        *(*tenant, run),
    )
    front.rows(
        "INSERT INTO tuning_samplers (id, organization_id, project_id, session_id, base_model,"
        " checkpoint_id, run_id, path, created_at)"
        " VALUES (%s, %s, %s, %s, 'toy', '', '', '', 1) RETURNING 1",
        *(sampler, *tenant, session),
    )
    front.rows(
        "INSERT INTO tuning_operations (id, organization_id, project_id, run_id, sampler_id,"
        " seq_id, digest, state, finished_at, created_at)"
        " VALUES ('op_acme', %s, %s, %s, '', 1, '', 'done', %s, 1) RETURNING 1",
        *(*tenant, run, 2**40),
    )
    return {
        "session": session,
        "run": run,
        "sampler": sampler,
        "operation": "op_acme",
        "weights": f"tinker://{run}/weights/acme",
    }


def _json(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()
