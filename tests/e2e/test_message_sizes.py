"""No page of a list is larger than 1 MiB, however large its rows are, and pages leave none out.

What a tenant or an agent may make as large as that is made by the API, and copied in the database.
"""

import json
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import httpx
import pytest
from google.protobuf.message import Message
from tests.support.clients.refusals import refusal
from tests.support.clients.wire import Metadata, Wire, every_method, methods_for, short
from tests.support.environments import postgres
from tests.support.factories.tenants import Caller
from tests.support.processes import shapes
from tests.support.processes.front_door import MODEL, Front, import_model, jsonl, upload

from windlass.api.auth.v1 import auth_pb2
from windlass.api.clusters.v1 import clusters_pb2 as clusters
from windlass.api.files.v1 import files_pb2 as files
from windlass.api.inference.v1 import inference_pb2 as inference
from windlass.api.jobs.v1 import jobs_pb2 as jobs
from windlass.api.models.v1 import models_pb2 as models
from windlass.api.rbac.v1 import rbac_pb2 as rbac
from windlass.api.users.v1 import sign_in_pb2 as sign_in
from windlass.api.users.v1 import users_pb2 as users
from windlass.api.users.v1 import workload_identity_pb2 as workloads
from windlass.audit.details import DETAIL_BYTES
from windlass.bounds import (
    ATTRIBUTE_VALUE_LENGTH,
    KEY_MODELS_LENGTH,
    MAX_KEY_MODELS,
    MAX_KEY_NETWORKS,
    MAX_KEY_TAGS,
    MAX_MATCHERS,
    MAX_NODE_LABELS,
    MAX_PROVIDER_GROUPS,
    PROVIDER_GROUP_LENGTH,
    STACK_CA_BYTES,
    TAG_LENGTH,
    TAG_NAME_LENGTH,
    TITLE_LENGTH,
    USER_ID_LENGTH,
    WEBHOOK_NAME_LENGTH,
    WEBHOOK_URL_LENGTH,
)
from windlass.clusters.transport.agent_service import MAX_CAPACITY_BYTES
from windlass.core.oidc.keys import JWKS_BYTES
from windlass.files.domain import FILENAME_LENGTH
from windlass.graders.sources import SOURCE_BYTES
from windlass.jobs.domain.reports import MAX_VALUES, MESSAGE_LENGTH, NAME_LENGTH
from windlass.modelfiles.naming import MODEL_NAME_LENGTH
from windlass.policy import PERMISSIONS
from windlass.users.keys.store import MAX_PEOPLE

MESSAGE_BYTES = 2**20
# The cursor of a row.
Key = Callable[[Any], str]
ID: Key = attrgetter("id")
# Four bytes in UTF-8.
WIDE = "\U0001d400"
# Lists whose rows are few, or of this release.
SMALL = {
    "AuditDestinationsService/ListAuditDestinations": "ten rows, each with an address of 2 KiB",
    "TuningService/ListSessions": "200 rows of at most 4 KiB",
    "TuningService/ListRuns": "200 rows of at most 4 KiB",
    "TuningService/ListCheckpoints": "200 rows of at most 4 KiB",
    "SeatsService/ListSeats": "100 rows of at most 3 KiB, and the devices of machines",
    "RbacService/ListRoles": "the roles of the policy",
    "GroupsService/ListGroups": "100 names",
    "ErasuresService/ListErasures": "100 rows of ids, without steps",
    "ExportsService/ListExports": "100 rows of ids, without steps",
    "ExportsService/ListExportParts": "200 names, each with two keys of objects of at most 1 KiB",
    "MailDomainsService/ListMailDomains": "50 rows of names and records",
    "InvitesService/ListInvites": "100 rows of 50 projects each",
    "GroupsService/ListProjectGroups": "100 names",
    "CertificatesService/ListCertificates": "50 rows of names",
    "ExternalKeysService/ListExternalKeys": "50 rows of at most 3 KiB, each with 200 ids",
    "DirectoryService/ListDirectoryMembers": "2,000 ids",
    "RolesService/ListHolders": "100 ids, each with 20 names",
    "GroupsService/ListGroupMembers": "100 ids",
    "RolesService/ListCustomRoles": "100 rows of 64 permissions and 1,000 characters each",
    "ElevationsService/ListElevations": "100 rows of 1,000 characters and two names each",
    "ElevationsService/ListRequestableRoles": "100 rows, as in ListCustomRoles",
    "RolesService/ListRoleAssignments": "100 rows, each with a role",
    "RbacService/ListAuditCheckpoints": "500 signed lines of half a KiB",
    "JobsService/ListRuntimes": "the backends that live clusters have",
    "InferenceService/ListEngines": "`inference.max_engines` of the installation",
    "InferenceService/ListServings": "as many as `inference.max_engines`",
    "FeedsService/ListFeeds": "100 rows of 32 ids and 2,000 characters, without graders and guards",
    "ModelsService/ListGrants": "100 ids",
    "JobsService/ListCheckpoints": "100 names, each with the 32 numbers of a report",
    "UsersService/ListAffectedKeys": "keys, as in ListApiKeys, by the same page",
}


class Shelf:
    """An installation full of large rows, and its administrator."""

    def __init__(self, front: Front, wire: Wire):
        self._front = front
        self.wire = wire
        with front.windlass.http() as http:
            me = http.get("/v1/me").json()["principal"]
        self.caller = Caller(
            front.windlass, me["organization_id"], me["project_id"], "platform_admin",
            front.windlass.owner_key, me["key_id"],
        )  # fmt: skip
        self.job = self.provider = ""

    @property
    def credentials(self) -> Metadata:
        return self.wire.credentials(self.caller)

    def copy(self, table: str, number: int, where: str, **columns: str) -> None:
        """So many copies of a row, which have other expressions of `n` in some columns."""
        query = (
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_name = %s AND is_identity = 'NO'"
        )
        names = [row[0] for row in self._front.rows(query, table)]
        chosen = [columns.get(name, f'"{name}"') for name in names]
        quoted = ", ".join(f'"{name}"' for name in names)
        made = self._front.rows(
            f"INSERT INTO {table} ({quoted}) SELECT {', '.join(chosen)}"
            f" FROM {table}, generate_series(1, {number}) AS n WHERE {where} RETURNING 1"
        )
        assert len(made) == number

    def insert_prefetches(self, number: int) -> None:
        """So many prefetches that have failed with the longest words; no cluster says them here."""
        made = self._front.rows(
            "INSERT INTO inference_prefetches SELECT 'pre-' || n, %s, %s, '', repeat('m', 250),"
            f" 'mv-' || n, 'c', 1, 'failed', {_text(2000)}, 2, 2, n, n, n"
            f" FROM generate_series(1, {number}) AS n RETURNING 1",
            *(self.caller.organization_id, self.caller.project_id),
        )
        assert len(made) == number

    def insert_trainings(self, number: int) -> None:
        """So many trainings of engines that have failed with the longest words."""
        made = self._front.rows(
            "INSERT INTO inference_trainings (id, organization_id, project_id, user_id, key_id,"
            " model, version_id, suffix, mode, digest, body, tokens, total_steps, steps, state,"
            " reason, message, engine_id, cluster_id, checkpoint_model, is_cancelled, is_saved,"
            " is_counted, generation, put_generation, created_at, urls_at, finished_at)"
            " SELECT 'train-' || n, %s, %s, 'u', 'k', repeat('m', 250), 'mv-' || n, '', 'hogwild',"
            f" '', '', 9, 9, 9, 'failed', repeat('r', 100), {_text(2000)}, 'e', 'c', '', false,"
            f" true, true, 2, 2, n, n, n FROM generate_series(1, {number}) AS n RETURNING 1",
            *(self.caller.organization_id, self.caller.project_id),
        )
        assert len(made) == number

    def insert_providers(self, number: int) -> None:
        """So many identity providers with as many groups as may be; no issuer answers for them."""
        made = self._front.rows(
            "INSERT INTO users_identity_providers SELECT 'idp_' || n, %s, 'p' || n, 'https://i',"
            " 'c', '', '{}', '{}', '', 'g', '', (SELECT jsonb_object_agg("
            f"repeat('{WIDE}', {PROVIDER_GROUP_LENGTH - 4}) || g, repeat('g', 30))"
            f" FROM generate_series(1, {MAX_PROVIDER_GROUPS}) AS g), true, n, n"
            f" FROM generate_series(1, {number}) AS n RETURNING 1",
            self.caller.organization_id,
        )
        assert len(made) == number

    def pages(self, name: str, request: Any, field: str, key: Key) -> Iterator[Message]:
        """Every page of a list."""
        method = next(method for method in every_method() if short(method) == name)
        while True:
            (page,) = self.wire.call(method, request, self.credentials)
            yield page
            if not page.has_more:
                return
            request.after = key(getattr(page, field)[-1])


@pytest.fixture(scope="module")
def shelf(postgres_url: str) -> Iterator[Shelf]:
    settings = {"agent": {"enabled": False}}
    with (
        postgres.reachable_folder() as folder,
        postgres.fresh_database(postgres_url) as url,
        shapes.installation(shapes.ONE, folder / "data", url, settings) as made,
    ):
        wire = Wire(front := Front(made, url))
        shelf = Shelf(front, wire)
        with made.http() as http:
            _fill(shelf, http)
        yield shelf
        wire.close()


def _fill(shelf: Shelf, http: httpx.Client) -> None:
    user, title = "u" * (USER_ID_LENGTH - 8), WIDE * TITLE_LENGTH
    made = {}
    for path, body in {
        "/v1/organizations": {"title": title},
        "/v1/projects": {"title": title},
        "/v1/api_keys": {"name": title, "role": "organization_owner"},
        "/v1/clusters": {"name": "c" * 50, "executor": "process"},
        "/v1/webhook_endpoints": {
            "url": "https://hooks.example.com/" + "w" * (WEBHOOK_URL_LENGTH - 26),
            "name": WIDE * WEBHOOK_NAME_LENGTH,
        },
    }.items():
        answer = http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        made[path] = answer.json()["id"]
    member = {"user_id": user, "role": "organization_owner"}
    assert http.put("/v1/members", json=member).status_code == 200
    assert http.put("/v1/secrets/s", json={"value": "x"}).status_code == 200
    model = "m" * 60
    assert import_model(http, model, MODEL).status_code == 200
    fetch = http.post("/v1/model_fetches", json={"source": "hf://a/b"}).json()["id"]
    example = {"messages": [{"role": "user", "content": "Ahoy?"}], "answer": "Ahoy!"}
    file = upload(shelf.caller.openai(), jsonl([example] * 20)).id
    body = _reinforced(model, file, SOURCE_BYTES) | {
        "metadata": dict.fromkeys("abcdefgh", WIDE * 512)
    }
    created = http.post("/v1/fine_tuning/jobs", json=body)
    assert created.status_code == 200, created.text
    shelf.job = created.json()["id"]
    here = {name: f"id = '{identifier}'" for name, identifier in made.items()}
    shelf.copy("users_organizations", 200, here["/v1/organizations"], id="id || n")
    shelf.copy("users_projects", 200, here["/v1/projects"], id="id || n", title="id || title || n")
    shelf.copy("users_members", 200, f"user_id = '{user}'", user_id="user_id || n")
    tag = TAG_NAME_LENGTH + 1 + TAG_LENGTH
    each = KEY_MODELS_LENGTH // MAX_KEY_MODELS
    people = f"(SELECT array_agg('{user}' || p) FROM generate_series(1, {MAX_PEOPLE}) p)"
    shelf.copy(
        "users_api_keys", 200, here["/v1/api_keys"], id="id || n",
        digest="digest || n::text::bytea", rests_on=people, user_id=f"'{user}'",
        scopes=f"ARRAY{sorted(PERMISSIONS)}",
        networks=f"(SELECT array_agg(repeat('f', 43)) FROM generate_series(1, {MAX_KEY_NETWORKS}))",
        tags=f"(SELECT array_agg(repeat('t', {tag})) FROM generate_series(1, {MAX_KEY_TAGS}))",
        models=f"(SELECT array_agg(repeat('m', {each})) FROM generate_series(1, {MAX_KEY_MODELS}))",
    )  # fmt: skip
    _fill_workloads(shelf, http)
    shelf.copy("users_secrets", 200, "name = 's'", name="repeat('s', 56) || n")
    first = f"sequence = 1 AND organization_id = '{shelf.caller.organization_id}'"
    detail = f"repeat('d', {DETAIL_BYTES})"
    shelf.copy(
        "rbac_audit_events", 1500, first, id="id || n", resource="repeat('r', 256)",
        sequence="1000000 + n", before=detail, after=detail,
    )  # fmt: skip
    name = f"repeat('m', {MODEL_NAME_LENGTH - 8}) || n"
    shelf.copy("models_versions", 1200, "true", id="id || n", name=name)
    shelf.copy(
        "models_models", 1200, "true", name=name, version_id="version_id || n",
        revision="revision + n",
    )  # fmt: skip
    shelf.copy(
        "models_fetches", 200, f"id = '{fetch}'", id="id || n", error_message="repeat('e', 2000)",
        state="'failed'", name="repeat('m', 250) || n",
    )  # fmt: skip
    shelf.copy(
        "files_files",
        12_000,
        f"id = '{file}'",
        id="id || n",
        status_details=_text(300),
        filename=_text(FILENAME_LENGTH // 4),
    )
    shelf.copy("jobs_webhooks", 200, here["/v1/webhook_endpoints"], id="id || n")
    shelf.copy("jobs_jobs", 30, f"id = '{shelf.job}'", id="id || n", request_id="id || n")
    values = json.dumps({"v" * (NAME_LENGTH - 2) + f"{n:02}": 1 / 3 for n in range(MAX_VALUES)})
    shelf.copy(
        "jobs_events", 1500, f"job_id = '{shelf.job}' AND revision = 1",
        revision="revision + 1000 + n", message=_text(MESSAGE_LENGTH),
        metrics=f"'{values}'::jsonb",
    )  # fmt: skip
    labels = {".".join(["p" * 60] * 4) + f".e/k{n:02}": "v" * 63 for n in range(MAX_NODE_LABELS)}
    place = f"/v1/clusters/{made['/v1/clusters']}/assignments/{made['/v1/projects']}"
    assigned = http.put(place, json={"node_selector": labels})
    assert assigned.status_code == 200, assigned.text
    shelf.copy("clusters_assignments", 200, "true", namespace="namespace || n",
               project_id="project_id || n")  # fmt: skip
    stack = {"cluster_id": made["/v1/clusters"], "url": "https://stack.example"}
    described = http.put("/v1/stacks/stack", json=stack)
    assert described.status_code == 200, described.text
    shelf.copy("inference_stacks", 200, "true", name="name || n",
               ca=f"repeat('c', {STACK_CA_BYTES})")  # fmt: skip
    shelf.insert_prefetches(200)
    shelf.insert_trainings(200)
    shelf.insert_providers(12)
    shelf.copy("clusters_clusters", 150, here["/v1/clusters"], id="id || n", name="name || n",
               capacity=f"'\\x{_capacity().hex()}'::bytea", shared="true")  # fmt: skip


def _fill_workloads(shelf: Shelf, http: httpx.Client) -> None:
    """Identity providers with large documents of keys, and rules with long matchers."""
    providers = "/v1/organization/workload_identity_providers"
    body = {"name": "p", "issuer": "https://ci.example", "audience": "a", "type": "oidc"}
    shelf.provider = http.post(providers, json=body).json()["id"]
    project = shelf.caller.project_id
    accounts = f"/v1/organization/projects/{project}/service_accounts"
    account = http.post(accounts, json={"name": "a"}).json()["id"]
    matchers = {f"m{n}": WIDE * ATTRIBUTE_VALUE_LENGTH for n in range(MAX_MATCHERS)}
    rule = {"project_id": project, "service_account_id": account, "attribute_matchers": matchers}
    made = http.post(f"{providers}/{shelf.provider}/federation_rules", json=rule)
    assert made.status_code == 200, made.text
    shelf.copy("users_federation_rules", 30, "true", id="id || n")
    shelf.copy("users_workload_providers", 10, "true", id="id || n",
               jwks=f"repeat('k', {JWKS_BYTES})")  # fmt: skip


def _text(characters: int) -> str:
    return f"repeat('{WIDE}', {characters})"


def _capacity() -> bytes:
    said = clusters.Capacity(backends=["b" * 1000] * (MAX_CAPACITY_BYTES // 1010), slots=1)
    assert MAX_CAPACITY_BYTES * 0.9 < said.ByteSize() <= MAX_CAPACITY_BYTES
    return said.SerializeToString()


def _reinforced(model: str, file: str, size: int) -> dict[str, Any]:
    """A job with a grader whose source has so many bytes."""
    source = "def grade(sample, item):\n    return 1.0\n#"
    source += "x" * (size - len(source))
    grader = {"type": "python", "name": "g", "source": source}
    method = {"type": "reinforcement", "reinforcement": {"grader": grader}}
    return {"model": model, "training_file": file, "method": method}


def test_a_job_that_no_message_holds_is_refused(shelf: Shelf) -> None:
    model, file = "m" * 60, "file-none"
    one = _reinforced(model, file, SOURCE_BYTES)["method"]["reinforcement"]["grader"]
    several = {"type": "multi", "name": "g", "graders": {f"g{n}": one for n in (0, 1)}}
    several["calculate_output"] = "g0 + g1"
    body = _reinforced(model, file, 100)
    body["method"]["reinforcement"]["grader"] = several
    with shelf.caller.http() as http:
        said = refusal(http.post("/v1/fine_tuning/jobs", json=body), 400)
    assert said.param == "method"
    assert "Shorten the graders" in said.message


LISTS: dict[str, tuple[Any, str, Key]] = {
    "UsersService/ListOrganizations": (users.ListOrganizationsRequest(), "organizations", ID),
    "UsersService/ListProjects": (users.ListProjectsRequest(), "projects", ID),
    "UsersService/ListMembers": (users.ListMembersRequest(), "members", attrgetter("user_id")),
    "UsersService/ListApiKeys": (users.ListApiKeysRequest(), "keys", ID),
    "WorkloadIdentityService/ListWorkloadProviders": (
        workloads.ListWorkloadProvidersRequest(),
        "providers",
        ID,
    ),
    "WorkloadIdentityService/ListFederationRules": (
        workloads.ListFederationRulesRequest(),
        "rules",
        ID,
    ),
    "UsersService/ListSecrets": (users.ListSecretsRequest(), "secrets", attrgetter("name")),
    "FilesService/ListFiles": (files.ListFilesRequest(), "files", ID),
    "ModelsService/ListModels": (models.ListModelsRequest(), "models", ID),
    "ModelsService/ListFetches": (models.ListFetchesRequest(), "fetches", ID),
    "JobsService/ListJobs": (jobs.ListJobsRequest(), "jobs", ID),
    "JobsService/ListEvents": (jobs.ListEventsRequest(), "events", ID),
    "WebhooksService/ListWebhooks": (jobs.ListWebhooksRequest(), "webhooks", ID),
    "ClustersService/ListClusters": (clusters.ListClustersRequest(), "clusters", ID),
    "ClustersService/ListAssignments": (
        clusters.ListAssignmentsRequest(),
        "assignments",
        lambda one: f"{one.cluster_id}/{one.project_id}",
    ),
    "IdentityProvidersService/ListIdentityProviders": (
        sign_in.ListIdentityProvidersRequest(),
        "providers",
        ID,
    ),
    "InferenceService/ListPrefetches": (inference.ListPrefetchesRequest(), "prefetches", ID),
    "InferenceService/ListEngineTrainings": (
        inference.ListEngineTrainingsRequest(),
        "trainings",
        ID,
    ),
    "InferenceService/ListStacks": (inference.ListStacksRequest(), "stacks", attrgetter("name")),
    "RbacService/ListAuditEvents": (rbac.ListAuditEventsRequest(), "events", ID),
}
LIMITS = {"FilesService/ListFiles": 10_000, "ModelsService/ListModels": 500,
          "JobsService/ListEvents": 1000, "RbacService/ListAuditEvents": 1000}  # fmt: skip
ROWS = {"WorkloadIdentityService/ListWorkloadProviders": 10,
        "IdentityProvidersService/ListIdentityProviders": 12,
        "WorkloadIdentityService/ListFederationRules": 30, "RbacService/ListAuditEvents": 1500,
        "FilesService/ListFiles": 12_000, "ModelsService/ListModels": 1200,
        "JobsService/ListEvents": 1500, "JobsService/ListJobs": 30,
        "ClustersService/ListClusters": 150}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_no_page_is_larger_than_a_message_may_be(shelf: Shelf, name: str) -> None:
    request, field, key = LISTS[name]
    request.limit = LIMITS.get(name, 100)
    if name == "JobsService/ListEvents":
        request.job_id = shelf.job
    if name == "WorkloadIdentityService/ListFederationRules":
        request.identity_provider_id = shelf.provider
    seen: list[str] = []
    for page in shelf.pages(name, request, field, key):
        assert page.ByteSize() <= MESSAGE_BYTES, f"{len(getattr(page, field))} rows"
        found = [key(one) for one in getattr(page, field)]
        assert found, "each page has a row at least"
        seen += found
    assert len(seen) == len(set(seen))
    assert len(seen) >= ROWS.get(name, 200)


def test_every_list_is_tried() -> None:
    lists = {
        short(name)
        for name in methods_for(auth_pb2.AUDIENCE_TENANT)
        if name.rpartition("/")[2].startswith("List") and not every_method()[name].server_streaming
    }
    assert lists == {*LISTS, *SMALL}
