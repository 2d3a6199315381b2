"""Isolation of tenants in every RPC that they may call: others' resources do not exist."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from tests.support.clients.wire import Wire, fields_of, methods_for, short
from tests.support.factories.job_documents import document
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
from windlass.api.inference.v1 import inference_pb2 as inference
from windlass.api.jobs.v1 import jobs_pb2 as jobs
from windlass.api.models.v1 import models_pb2 as models
from windlass.api.rbac.v1 import rbac_pb2 as rbac
from windlass.api.sessions.v1 import sessions_pb2 as sessions
from windlass.api.usage.v1 import usage_pb2 as usage
from windlass.api.users.v1 import users_pb2 as users
from windlass.client import Windlass as Client

Code = grpc.StatusCode
SECRET = "acme_wandb"
PRIVATE = "acme-private"


@dataclass(frozen=True)
class Names:
    """Ids of everything that a project has; all text, so that made-up ones are as easy."""

    organization: str
    project: str
    file: str
    upload: str
    model: str
    import_: str
    fetch: str
    job: str
    key: str
    secret: str
    user: str
    webhook: str

    @classmethod
    def never(cls) -> "Names":
        """Names of the same form that nothing ever had."""
        return cls(
            organization="org-" + "n" * 24,
            project="proj_" + "n" * 24,
            file="file-" + "n" * 24,
            upload="upload_" + "n" * 24,
            model="never-was",
            import_="import-" + "n" * 24,
            fetch="fetch-" + "n" * 24,
            job="ftjob-" + "n" * 24,
            key="key_" + "n" * 24,
            secret="never_was",
            user="nobody",
            webhook="we_" + "n" * 24,
        )

    def blank(self, text: str) -> str:
        """A text without these names, to compare what two refusals say."""
        for field in fields(self):
            text = text.replace(getattr(self, field.name), "…")
        return text


# RPCs that name something: for each the requests that name somebody else's.
OF_A_PROJECT: dict[str, Callable[[Names], list[Message]]] = {
    "UsersService/GetProject": lambda n: [users.GetProjectRequest(project_id=n.project)],
    "UsersService/ArchiveProject": lambda n: [users.ArchiveProjectRequest(project_id=n.project)],
    "UsersService/PutMember": lambda n: [
        users.PutMemberRequest(project_id=n.project, user_id="eve", role=users.ROLE_PROJECT_OWNER)
    ],
    "UsersService/ListMembers": lambda n: [users.ListMembersRequest(project_id=n.project)],
    "UsersService/RemoveMember": lambda n: [
        users.RemoveMemberRequest(project_id=n.project, user_id=n.user)
    ],
    "UsersService/ListAffectedKeys": lambda n: [
        users.ListAffectedKeysRequest(project_id=n.project, user_id=n.user)
    ],
    "UsersService/CreateApiKey": lambda n: [
        users.CreateApiKeyRequest(project_id=n.project, name="x", role=users.ROLE_PROJECT_MEMBER)
    ],
    "UsersService/ListApiKeys": lambda n: [users.ListApiKeysRequest(project_id=n.project)],
    "UsersService/RevokeApiKey": lambda n: [users.RevokeApiKeyRequest(key_id=n.key)],
    "UsersService/RotateApiKey": lambda n: [users.RotateApiKeyRequest(key_id=n.key)],
    "UsersService/UpdateApiKey": lambda n: [users.UpdateApiKeyRequest(key_id=n.key, name="mine")],
    "UsersService/DeleteSecret": lambda n: [users.DeleteSecretRequest(name=n.secret)],
    "FilesService/CommitFile": lambda n: [files.CommitFileRequest(upload_id=n.upload, bytes=1)],
    "FilesService/AbortUpload": lambda n: [files.AbortUploadRequest(upload_id=n.upload)],
    "FilesService/GetFile": lambda n: [files.GetFileRequest(file_id=n.file)],
    "FilesService/GetFileObject": lambda n: [files.GetFileObjectRequest(file_id=n.file)],
    "FilesService/DeleteFile": lambda n: [files.DeleteFileRequest(file_id=n.file)],
    "ModelsService/CompleteImport": lambda n: [models.CompleteImportRequest(import_id=n.import_)],
    "ModelsService/GetFetch": lambda n: [models.GetFetchRequest(id=n.fetch)],
    "ModelsService/CancelFetch": lambda n: [models.CancelFetchRequest(id=n.fetch)],
    "ModelsService/GetModel": lambda n: [models.GetModelRequest(id=n.model)],
    "ModelsService/DeleteModel": lambda n: [models.DeleteModelRequest(id=n.model)],
    "InferenceService/PutServing": lambda n: [
        inference.PutServingRequest(model=n.model, min_replicas=1)
    ],
    "InferenceService/PutPrefetch": lambda n: [inference.PutPrefetchRequest(model=n.model)],
    "InferenceService/GetServing": lambda n: [inference.GetServingRequest(model=n.model)],
    "InferenceService/DeleteServing": lambda n: [inference.DeleteServingRequest(model=n.model)],
    "JobsService/CreateJob": lambda n: [
        jobs.CreateJobRequest(document=document(model="shared", training_file=n.file))
    ],
    "JobsService/CheckJob": lambda n: [
        jobs.CheckJobRequest(document=document(model="shared", training_file=n.file))
    ],
    "JobsService/GetJob": lambda n: [jobs.GetJobRequest(job_id=n.job)],
    "JobsService/CancelJob": lambda n: [jobs.CancelJobRequest(job_id=n.job)],
    "JobsService/PauseJob": lambda n: [jobs.PauseJobRequest(job_id=n.job)],
    "JobsService/ResumeJob": lambda n: [jobs.ResumeJobRequest(job_id=n.job)],
    "JobsService/ExplainJob": lambda n: [jobs.ExplainJobRequest(job_id=n.job)],
    "JobsService/ListEvents": lambda n: [jobs.ListEventsRequest(job_id=n.job)],
    "JobsService/WatchEvents": lambda n: [jobs.WatchEventsRequest(job_id=n.job)],
    "JobsService/ListCheckpoints": lambda n: [jobs.ListCheckpointsRequest(job_id=n.job)],
    "JobsService/ReadLog": lambda n: [jobs.ReadLogRequest(job_id=n.job)],
    "JobsService/ListJobs": lambda n: [jobs.ListJobsRequest(after=n.job)],
    "WebhooksService/ListWebhooks": lambda n: [jobs.ListWebhooksRequest(after=n.webhook)],
    "WebhooksService/GetWebhook": lambda n: [jobs.GetWebhookRequest(webhook_id=n.webhook)],
    "WebhooksService/DeleteWebhook": lambda n: [jobs.DeleteWebhookRequest(webhook_id=n.webhook)],
    "WebhooksService/TestWebhook": lambda n: [
        jobs.TestWebhookRequest(webhook_id=n.webhook, event_type="fine_tuning.job.failed")
    ],
}
OF_AN_ORGANIZATION: dict[str, Callable[[Names], list[Message]]] = {
    "UsersService/GetOrganization": lambda n: [
        users.GetOrganizationRequest(organization_id=n.organization)
    ],
    "UsersService/DeleteOrganization": lambda n: [
        users.DeleteOrganizationRequest(organization_id=n.organization)
    ],
    "UsersService/GetQuotas": lambda n: [users.GetQuotasRequest(project_id=n.project)],
    "UsersService/PutProjectQuota": lambda n: [
        users.PutQuotaRequest(project_id=n.project, name="jobs", bound=1)
    ],
    "ModelsService/CreateGrants": lambda n: [
        models.CreateGrantsRequest(model=n.model, project_ids=[n.project])
    ],
    "ModelsService/ListGrants": lambda n: [models.ListGrantsRequest(model=n.model)],
    "ModelsService/DeleteGrant": lambda n: [
        models.DeleteGrantRequest(model=n.model, grant_id="cp_" + "n" * 24)
    ],
}
# RPCs that answer with rows: for each a request for as many as may be seen.
LISTS: dict[str, Callable[[Names], Message]] = {
    "UsersService/ListOrganizations": lambda n: users.ListOrganizationsRequest(limit=100),
    "UsersService/ListProjects": lambda n: users.ListProjectsRequest(
        limit=100, include_archived=True
    ),
    "UsersService/ListMembers": lambda n: users.ListMembersRequest(limit=100),
    "UsersService/ListApiKeys": lambda n: users.ListApiKeysRequest(limit=100),
    "UsersService/ListSecrets": lambda n: users.ListSecretsRequest(),
    "UsersService/WhoAmI": lambda n: users.WhoAmIRequest(),
    "FilesService/ListFiles": lambda n: files.ListFilesRequest(),
    "ModelsService/ListFetches": lambda n: models.ListFetchesRequest(),
    "ModelsService/ListModels": lambda n: models.ListModelsRequest(),
    "JobsService/ListJobs": lambda n: jobs.ListJobsRequest(limit=100, metadata={"team": "acme"}),
    "WebhooksService/ListWebhooks": lambda n: jobs.ListWebhooksRequest(),
    "JobsService/ListRuntimes": lambda n: jobs.ListRuntimesRequest(),
    "InferenceService/ListEngines": lambda n: inference.ListEnginesRequest(),
    "InferenceService/ListServings": lambda n: inference.ListServingsRequest(),
    "InferenceService/ListPrefetches": lambda n: inference.ListPrefetchesRequest(),
    "RbacService/ListAuditEvents": lambda n: rbac.ListAuditEventsRequest(limit=100),
    "RbacService/ListRoles": lambda n: rbac.ListRolesRequest(),
    "RbacService/Check": lambda n: rbac.CheckRequest(permission="files.read", resource=n.file),
    "ClustersService/ListAssignments": lambda n: clusters.ListAssignmentsRequest(),
    "UsageService/QueryUsage": lambda n: usage.QueryUsageRequest(
        start_at=int(time.time()) - 3600,
        group_by=["project_id", "key_id", "user_id", "model"],
        project_ids=[n.project],
    ),
}
# What the owner sees of its own by the same requests.
SEEN = {
    "UsersService/ListProjects": "project",
    "UsersService/ListApiKeys": "key",
    "UsersService/ListSecrets": "secret",
    "FilesService/ListFiles": "file",
    "ModelsService/ListFetches": "fetch",
    "ModelsService/ListModels": "model",
    "InferenceService/ListServings": "model",
    "InferenceService/ListPrefetches": "model",
    "JobsService/ListJobs": "job",
    "WebhooksService/ListWebhooks": "webhook",
    "ClustersService/ListAssignments": "project",
    "UsageService/QueryUsage": "key",
}
# What belongs to the platform: anyone may look at clusters, its administrator alone changes them.
PLATFORM: dict[str, Message] = {
    "UsersService/CreateOrganization": users.CreateOrganizationRequest(title="Evil"),
    "UsersService/DeleteOrganization": users.DeleteOrganizationRequest(organization_id="x"),
    "UsersService/PutOrganizationQuota": users.PutQuotaRequest(name="jobs", bound=1),
    "InferenceService/PutStack": inference.PutStackRequest(
        name="evil", cluster_id="x", url="http://evil.example"
    ),
    "InferenceService/ListStacks": inference.ListStacksRequest(),
    "InferenceService/DeleteStack": inference.DeleteStackRequest(name="x"),
    "InferenceService/AdoptModel": inference.AdoptModelRequest(stack="x", id="evil"),
    "ClustersService/RegisterCluster": clusters.RegisterClusterRequest(name="evil"),
    "ClustersService/UpdateCluster": clusters.UpdateClusterRequest(cluster_id="x"),
    "ClustersService/RekeyCluster": clusters.RekeyClusterRequest(cluster_id="x"),
    "ClustersService/UnregisterCluster": clusters.UnregisterClusterRequest(cluster_id="x"),
    "ClustersService/GetInventory": clusters.GetInventoryRequest(cluster_id="x"),
    "ClustersService/PutAssignment": clusters.PutAssignmentRequest(),
    "ClustersService/DeleteAssignment": clusters.DeleteAssignmentRequest(cluster_id="x"),
    "ClustersService/GetQuota": clusters.GetQuotaRequest(cluster_id="x"),
    "ClustersService/PutQuota": clusters.PutQuotaRequest(cluster_id="x"),
}
OPEN = {"ClustersService/ListClusters", "ClustersService/GetCluster"}
# What these make is the caller's own, whatever others have: tests of their own below.
MAKES = {
    "UsersService/CreateProject", "UsersService/PutSecret", "FilesService/CreateUpload",
    "ModelsService/CreateImport", "ModelsService/CreateFetch", "SessionsService/CreateAccess",
    "WebhooksService/CreateWebhook",
}  # fmt: skip


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
        body = {"user_id": "ann@acme", "role": "project_member", "project_id": member.project_id}
        assert http.put("/v1/members", json=body).status_code == 200
    client = member.openai()
    file = upload(client, jsonl([GOOD] * 20), name="acme.jsonl")
    job = client.fine_tuning.jobs.create(
        model=PRIVATE, training_file=file.id, metadata={"team": "acme"}, suffix="acme"
    )
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
    )
    assert client.fine_tuning.jobs.retrieve(job.id).status == "queued", "somebody ended it"
    assert client.files.retrieve(file.id).id == file.id
    assert client.models.retrieve(PRIVATE).id == PRIVATE


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
        assert {one["organization_id"] for one in events(caller)} == {caller.organization_id}


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
