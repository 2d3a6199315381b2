"""Isolation of tenants in every RPC and route: what is others' does not exist."""

import base64
import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import grpc
import pytest
from tests.support.clients.example_requests import Operation, operations
from tests.support.clients.wire import Wire, fields_of, methods_for, short
from tests.support.factories.tenant_rpcs.acme import PRIVATE, SECRET, make_names
from tests.support.factories.tenant_rpcs.names import Names
from tests.support.factories.tenant_rpcs.of_a_project import OF_A_PROJECT
from tests.support.factories.tenant_rpcs.of_an_organization import OF_AN_ORGANIZATION
from tests.support.factories.tenant_rpcs.others import LISTS, MAKES, OPEN, PLATFORM, SEEN
from tests.support.factories.tenants import Caller, Tenants
from tests.support.processes.front_door import MODEL, Front, import_model
from tests.support.waiting import wait_until

from windlass.api.auth.v1 import auth_pb2
from windlass.api.clusters.v1 import clusters_pb2 as clusters
from windlass.api.files.v1 import files_pb2 as files
from windlass.api.sessions.v1 import sessions_pb2 as sessions
from windlass.client import Windlass as Client
from windlass.policy import ROLES

Code = grpc.StatusCode
# Parts of the paths of what waits, is tried again, or notes when it was used.
MOVING = ("fetch", "/jobs/", "/servings/", "api_keys", "audit_destinations")


def test_every_tenant_rpc_has_a_case() -> None:
    tables = (OF_A_PROJECT, OF_AN_ORGANIZATION, LISTS, PLATFORM, OPEN, MAKES)
    cases = {name for table in tables for name in table}
    assert cases == {short(name) for name in FULL}


FULL = methods_for(auth_pb2.AUDIENCE_TENANT)
NAMES = {short(name): name for name in FULL}


@pytest.fixture(scope="module")
def mine(tenants: Tenants, wire: Wire, front: Front) -> Iterator[Names]:
    """Yields what Acme's main project has."""
    found = make_names(tenants, wire, front)
    yield found
    client = tenants.member.openai()
    assert client.fine_tuning.jobs.retrieve(found.job).status == "queued", "somebody ended it"
    assert client.files.retrieve(found.file).id == found.file
    assert client.models.retrieve(found.model).id == found.model


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


def test_a_route_to_what_is_foreign_leads_nowhere(tenants: Tenants, mine: Names) -> None:
    """Every route of /openapi.json that names something, and by the same answer for all names."""
    never = Names.never()
    with tenants.admin.http() as http:
        found = [one for one in operations(http.get("/openapi.json").json()) if "{" in one.path]
    before = shown(tenants.project_owner, found, mine) | shown(tenants.owner, found, mine)
    for outsider in (tenants.stranger, tenants.strange_member):
        with outsider.http() as http:
            for one in found:
                foreign, unknown = (
                    http.request(*one.target(names.in_paths), **one.options())
                    for names in (mine, never)
                )
                assert foreign.status_code == unknown.status_code, one.name
                if foreign.is_error:
                    assert mine.blank(foreign.text) == never.blank(unknown.text), one.name
    after = shown(tenants.project_owner, found, mine) | shown(tenants.owner, found, mine)
    assert [name for name in before if before[name] != after.get(name)] == []


def shown(caller: Caller, routes: list[Operation], names: Names) -> dict[str, str]:
    """Returns what a caller reads of all that has names; of what changes by itself, that it is."""
    found = {}
    with caller.http() as http:
        for one in (route for route in routes if route.method == "GET"):
            answer = http.request(*one.target(names.in_paths), **one.options())
            if answer.status_code == 200:
                moves = any(part in one.path for part in MOVING)
                found[one.name] = "" if moves else answer.text
    return found


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
