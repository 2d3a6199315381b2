"""Isolation of tenants in every RPC that they may call: others' resources do not exist."""

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import grpc
import httpx
import pytest
from tests.support.clients.wire import Wire, fields_of, methods_for, short
from tests.support.environments.client_certificates import made
from tests.support.factories.tenant_rpcs.names import Names
from tests.support.factories.tenant_rpcs.of_a_project import OF_A_PROJECT
from tests.support.factories.tenant_rpcs.of_an_organization import OF_AN_ORGANIZATION
from tests.support.factories.tenant_rpcs.others import LISTS, MAKES, OPEN, PLATFORM, SEEN
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

from windlass.api.auth.v1 import auth_pb2
from windlass.api.clusters.v1 import clusters_pb2 as clusters
from windlass.api.files.v1 import files_pb2 as files
from windlass.api.sessions.v1 import sessions_pb2 as sessions
from windlass.api.usage.v1 import usage_pb2 as usage
from windlass.client import Windlass as Client
from windlass.policy import ROLES

Code = grpc.StatusCode
SECRET = "acme_wandb"
PRIVATE = "acme-private"


def test_every_tenant_rpc_has_a_case() -> None:
    tables = (OF_A_PROJECT, OF_AN_ORGANIZATION, LISTS, PLATFORM, OPEN, MAKES)
    cases = {name for table in tables for name in table}
    assert cases == {short(name) for name in FULL}


FULL = methods_for(auth_pb2.AUDIENCE_TENANT)
NAMES = {short(name): name for name in FULL}


@pytest.fixture(scope="module")
def mine(tenants: Tenants, wire: Wire, front: Front) -> Iterator[Names]:
    """Yields what Acme's main project has."""
    owner, member = tenants.project_owner, tenants.member
    with tenants.admin.http() as http:
        assert import_model(http, "shared", MODEL, for_everyone=True).status_code == 200
    with owner.http() as http:
        assert import_model(http, PRIVATE, MODEL).status_code == 200
        served = http.put(f"/v1/servings/{PRIVATE}", json={"min_replicas": 1})
        assert served.status_code == 200, served.text
        opened = http.post("/v1/models/imports", json={"id": "open", "files": promise(MODEL)})
        wish = {"source": "hf://acme/plans", "id": "acme-plans"}
        fetch = http.post("/v1/model_fetches", json=wish).json()["id"]
        assert http.put(f"/v1/secrets/{SECRET}", json={"value": "s3cr3t"}).status_code == 200
        told = {"url": "https://hooks.example.com/acme"}
        webhook = http.post("/v1/webhook_endpoints", json=told).json()["id"]
        body = {"role_name": "keeper", "permissions": ["secrets.write"]}
        role = http.post(f"/v1/projects/{member.project_id}/roles", json=body).json()["id"]
        rules = {"askers": "project", "longest_seconds": 3600, "approvals": 1}
        path = f"/v1/projects/{member.project_id}"
        assert http.put(f"{path}/roles/{role}/elevation", json=rules).status_code == 200
        body = {"user_id": "ann@acme", "role": "project_member", "project_id": member.project_id}
        assert http.put("/v1/members", json=body).status_code == 200
        holders = f"/v1/projects/{member.project_id}/users/ann@acme/roles"
        assert http.post(holders, json={"role_id": role}).status_code == 200
    with member.http() as http:
        asked = {"role_id": role, "reason": "x", "seconds": 600}
        elevation = http.post(f"{path}/elevations", json=asked).json()["id"]
    for one in (tenants.owner, tenants.stranger):
        with one.http() as http:
            assert http.put("/v1/organization/directory", json={}).status_code == 200
    client = member.openai()
    file = upload(client, jsonl([GOOD] * 20), name="acme.jsonl")
    job = client.fine_tuning.jobs.create(
        model=PRIVATE, training_file=file.id, metadata={"team": "acme"}, suffix="acme"
    )
    with tenants.admin.http() as http:
        http.headers["OpenAI-Organization"] = member.organization_id
        group = http.post("/v1/organization/groups", json={"name": "acme"}).json()["id"]
        place = {
            "kms_arn": "arn:aws:kms:eu-central-1:123456789012:key/acme",
            "role_arn": "arn:aws:iam::123456789012:role/acme",
            "external_id": member.organization_id,
        }
        body = {"name": "acme", "type": "aws", **place}
        external_key = http.post("/v1/organization/external_keys", json=body).json()["id"]
        body = {"certificate": made("acme").pem}
        certificate = http.post("/v1/organization/certificates", json=body).json()["id"]
        exported = {"kind": "webhook", "url": "https://hooks.example.com/acme", "from_now": True}
        destination = http.post("/v1/audit_destinations", json=exported).json()["id"]
        added = http.post(f"/v1/organization/groups/{group}/users", json={"user_id": "ann@acme"})
        assert added.status_code == 200
        invite = http.post("/v1/organization/invites", json={"role": "reader"}).json()["id"]
        domain = {"name": "owned.example"}
        assert http.post("/v1/organization/mail_domains", json=domain).status_code == 200
        provider, account, rule = _let_in(http, member.project_id)
    with tenants.admin.http() as http:
        cluster = http.post("/v1/clusters", json={"name": "acme"}).json()["id"]
    wanted = clusters.Assignment(cluster_id=cluster, project_id=member.project_id)
    wire.call(
        NAMES["ClustersService/PutAssignment"],
        clusters.PutAssignmentRequest(assignment=wanted),
        wire.credentials(tenants.admin),
    )
    ticket = wire.call(
        NAMES["FilesService/CreateUpload"],
        files.CreateUploadRequest(filename="acme.txt", purpose="user_data"),
        wire.credentials(member),
    )[0]
    _use(wire, member)
    # As if a cluster had brought it.
    front.rows(
        "INSERT INTO inference_prefetches VALUES"
        " ('pre-acme', %s, %s, %s, %s, 'mv-1', %s, 1, 'ready', '', 2, 2, 1, 1, 2) RETURNING 1",
        *(member.organization_id, member.project_id, member.project_id, PRIVATE, cluster),
    )
    # As if an issuer had answered.
    front.rows(
        "INSERT INTO users_identity_providers VALUES ('idp_acme', %s, 'acme',"
        " 'https://issuer.example', 'windlass', '', '{}', '{}', '', '', '', '{}', true, 1, 1)"
        " RETURNING 1",
        member.organization_id,
    )
    # As if a project had been deleted and undone.
    front.rows(
        "INSERT INTO core_erasures (id, organization_id, project_id, project_ids, restores, state,"
        " asked_by, asked_at, erase_at) VALUES ('erasure_acme', %s, 'proj_gone', '{}', '{}',"
        " 'undone', 'ann@acme', 1, 1) RETURNING 1",
        member.organization_id,
    )
    # As if its owner had asked for all that is theirs.
    front.rows(
        "INSERT INTO core_exports (id, organization_id, user_id, project_ids, state, asked_by,"
        " asked_at, expires_at) VALUES ('export_acme', %s, '', '{}', 'ready', 'ann@acme', 1, %s)"
        " RETURNING 1",
        *(member.organization_id, 2**40),
    )
    yield Names(
        organization=member.organization_id,
        project=member.project_id,
        file=file.id,
        upload=ticket.upload_id,
        model=PRIVATE,
        import_=opened.json()["import_id"],
        fetch=fetch,
        job=job.id,
        key=member.key_id,
        secret=SECRET,
        user="ann@acme",
        webhook=webhook,
        destination=destination,
        role=role,
        group=group,
        provider="idp_acme",
        invite=invite,
        mail_domain="owned.example",
        elevation=elevation,
        external_key=external_key,
        certificate=certificate,
        workload_provider=provider,
        rule=rule,
        account=account,
        erasure="erasure_acme",
        export="export_acme",
    )
    assert client.fine_tuning.jobs.retrieve(job.id).status == "queued", "somebody ended it"
    assert client.files.retrieve(file.id).id == file.id
    assert client.models.retrieve(PRIVATE).id == PRIVATE


def _let_in(http: httpx.Client, project_id: str) -> tuple[str, str, str]:
    """An identity provider, a service account, and the rule that makes one the other."""
    providers, issuer = "/v1/organization/workload_identity_providers", "https://ci.example"
    body = {"name": "acme", "issuer": issuer, "audience": "acme", "type": "oidc"}
    provider = http.post(providers, json=body).json()["id"]
    accounts = f"/v1/organization/projects/{project_id}/service_accounts"
    account = http.post(accounts, json={"name": "acme"}).json()["id"]
    wanted = {
        "project_id": project_id,
        "service_account_id": account,
        "attribute_matchers": {"sub": "acme"},
    }
    rule = http.post(f"{providers}/{provider}/federation_rules", json=wanted)
    assert rule.status_code == 200, rule.text
    return provider, account, rule.json()["id"]


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


@pytest.mark.parametrize("name", [*OF_A_PROJECT, *OF_AN_ORGANIZATION])
def test_a_foreign_name_is_a_name_that_never_was(
    wire: Wire, tenants: Tenants, mine: Names, name: str
) -> None:
    never = Names.never()
    outsiders = tenants.outsiders if name in OF_A_PROJECT else tenants.outsiders[1:]
    requests = {**OF_A_PROJECT, **OF_AN_ORGANIZATION}[name]
    allowed = {Code.NOT_FOUND, Code.PERMISSION_DENIED}
    if name in ("JobsService/CreateJob", "JobsService/CheckJob"):
        allowed = {Code.INVALID_ARGUMENT}
    for outsider in outsiders:
        credentials = wire.credentials(outsider)
        for foreign, unknown in zip(requests(mine), requests(never), strict=True):
            said = wire.refusal(NAMES[name], foreign, credentials)
            never_was = wire.refusal(NAMES[name], unknown, credentials)
            assert said is not None, (outsider.role, foreign)
            assert never_was is not None
            assert said[0] in allowed, said
            assert (*said[:2], mine.blank(said[2])) == (*never_was[:2], never.blank(never_was[2]))


@pytest.mark.parametrize("name", LISTS)
def test_answers_hold_nothing_of_others(
    wire: Wire, tenants: Tenants, mine: Names, name: str
) -> None:
    request = LISTS[name](mine)
    for outsider in tenants.outsiders:
        credentials = wire.credentials(outsider)
        if (said := wire.refusal(NAMES[name], request, credentials)) is not None:
            assert said[0] is Code.PERMISSION_DENIED
            continue
        answer = fields_of(wire.call(NAMES[name], request, credentials))
        if name.endswith("ListAuditEvents"):
            # It names what the outsider itself has tried.
            assert f'organization_id: "{mine.organization}"' not in answer
            continue
        hidden = {field.name: getattr(mine, field.name) for field in fields(mine)}
        if outsider.organization_id == mine.organization:
            del hidden["organization"]
        assert [kind for kind, value in hidden.items() if value in answer] == []


@pytest.mark.parametrize(("name", "kind"), SEEN.items())
def test_the_same_answers_show_their_owner_what_it_has(
    wire: Wire, tenants: Tenants, mine: Names, name: str, kind: str
) -> None:
    answers = wire.call(NAMES[name], LISTS[name](mine), wire.credentials(tenants.member))
    assert getattr(mine, kind) in fields_of(answers)


def test_a_foreign_cursor_is_an_unknown_one(wire: Wire, tenants: Tenants, mine: Names) -> None:
    method = NAMES["FilesService/ListFiles"]
    for outsider in tenants.outsiders:
        for name in (mine.file, Names.never().file):
            request = files.ListFilesRequest(after=name, order="asc")
            assert fields_of(wire.call(method, request, wire.credentials(outsider))) == ""


@pytest.mark.parametrize("name", PLATFORM)
def test_the_platform_is_its_administrators(wire: Wire, tenants: Tenants, name: str) -> None:
    for caller in (*tenants.roles[1:], *tenants.outsiders):
        if FULL[NAMES[name]].permission in ROLES[caller.role]:
            assert caller.role == "cluster_operator"
            continue
        said = wire.refusal(NAMES[name], PLATFORM[name], wire.credentials(caller))
        assert said is not None
        assert said[0] is Code.PERMISSION_DENIED


def test_a_name_may_be_taken_by_everyone_for_itself(
    wire: Wire, tenants: Tenants, mine: Names
) -> None:
    other = {**MODEL, "config.json": b'{"model_type": "other"}'}
    for outsider in (tenants.sibling, tenants.strange_member):
        with outsider.http() as http:
            assert import_model(http, PRIVATE, other).status_code == 200
            made = http.get(f"/v1/models/{PRIVATE}").json()
            assert made["windlass"]["project_id"] == outsider.project_id
            assert http.delete(f"/v1/models/{PRIVATE}").status_code == 200
    with tenants.member.http() as http:
        assert http.get(f"/v1/models/{PRIVATE}").json()["windlass"]["project_id"] == mine.project


def test_a_secret_of_the_same_name_is_another(tenants: Tenants, mine: Names) -> None:
    with tenants.stranger.http() as theirs, tenants.project_owner.http() as ours:
        assert theirs.put(f"/v1/secrets/{SECRET}", json={"value": "x"}).status_code == 200
        assert theirs.delete(f"/v1/secrets/{SECRET}").status_code == 200
        assert [one["id"] for one in ours.get("/v1/secrets").json()["data"]] == [SECRET]


def test_a_project_of_the_same_title_is_another(tenants: Tenants) -> None:
    with tenants.stranger.http() as http:
        assert http.post("/v1/projects", json={"title": "Main"}).status_code == 200


def test_headers_reach_no_foreign_project(tenants: Tenants, mine: Names) -> None:
    """`OpenAI-Project` and `OpenAI-Organization` name a scope of the key's own, or are refused."""
    for outsider in tenants.outsiders:
        with outsider.http() as http:
            said = set()
            for project in (mine.project, "proj_" + "n" * 24):
                answer = http.get("/v1/files", headers={"OpenAI-Project": project})
                said.add((answer.status_code, answer.text.replace(project, "…")))
            assert len(said) == 1
            assert said.pop()[0] == 403
    for organization in (mine.organization, "org-" + "n" * 24):
        with tenants.stranger.http() as http:
            answer = http.get("/v1/files", headers={"OpenAI-Organization": organization})
            assert answer.status_code == 403


def test_what_is_foreign_does_not_chat(tenants: Tenants, mine: Names) -> None:
    body: dict[str, Any] = {"model": PRIVATE, "messages": [{"role": "user", "content": "x"}]}
    for outsider in (tenants.sibling, tenants.strange_member):
        with outsider.http() as http:
            assert http.post("/v1/chat/completions", json=body).status_code == 404


def test_the_audit_log_is_the_organizations(tenants: Tenants, mine: Names) -> None:
    def events(caller: Caller) -> list[dict[str, Any]]:
        with Client(caller.windlass.url, caller.key) as client:
            return list(client.pages("/v1/audit_events"))

    wait_until(lambda: any("PutSecret" in one["action"] for one in events(tenants.owner)))
    for caller in (tenants.owner, tenants.stranger):
        found = events(caller)
        assert {one["organization_id"] for one in found} == {caller.organization_id}
        assert [one["sequence"] for one in found] == list(range(len(found), 0, -1))
        with caller.http() as http:
            verified = http.get("/v1/audit_events/verification").json()
            checkpoints = http.get("/v1/audit_checkpoints").json()["data"]
        assert (verified["fault"], verified["sequence"] >= len(found)) == (None, True)
        for checkpoint in checkpoints:
            signed = base64.urlsafe_b64decode(checkpoint["jws"].split(".")[1] + "==")
            assert json.loads(signed)["organization_id"] == caller.organization_id


def test_the_way_into_a_cluster_is_for_projects_that_have_a_place_there(
    wire: Wire, tenants: Tenants, mine: Names
) -> None:
    listed = NAMES["ClustersService/ListAssignments"]
    found = wire.call(listed, clusters.ListAssignmentsRequest(), wire.credentials(tenants.member))[
        0
    ].assignments[0]
    request = sessions.CreateAccessRequest(cluster_id=found.cluster_id)
    access = NAMES["SessionsService/CreateAccess"]
    (given,) = wire.call(access, request, wire.credentials(tenants.member))
    assert given.namespace == found.namespace
    never = sessions.CreateAccessRequest(cluster_id="cls_" + "n" * 24)
    for outsider in tenants.outsiders:
        credentials = wire.credentials(outsider)
        said = wire.refusal(access, request, credentials)
        assert said is not None
        assert said[0] is Code.NOT_FOUND
        never_was = wire.refusal(access, never, credentials)
        assert never_was is not None
        shown = said[2].replace(request.cluster_id, "…")
        assert (*said[:2], shown) == (*never_was[:2], never_was[2].replace(never.cluster_id, "…"))
