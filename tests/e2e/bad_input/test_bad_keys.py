"""Keys that do not open: wrong, missing, expired, revoked, and those whose room is gone."""

from collections.abc import Callable

import httpx
import pytest
from openai import AuthenticationError, PermissionDeniedError
from tests.support.clients.refusals import Refusal, refusal, refused
from tests.support.factories.tenants import Caller, Tenants, new_key, new_project
from tests.support.waiting import wait_until, within

PATHS = (
    ("GET", "/v1/me"), ("GET", "/v1/files"), ("POST", "/v1/files"), ("GET", "/v1/nope"),
    ("POST", "/v1/fine_tuning/jobs"), ("POST", "/v1/chat/completions"), ("PATCH", "/v1/models"),
)  # fmt: skip
REVOKED_SECONDS = 1.0


def send(tenants: Tenants, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return httpx.request(method, tenants.admin.windlass.url + path, headers=raw)


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_without_a_key_nothing_is_told(tenants: Tenants, method: str, path: str) -> None:
    key = tenants.member.key
    said: set[Refusal] = set()
    for headers in (
        {}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": f"Basic {key}"},
        {"Authorization": key}, {"X-API-Key": ""}, {"api-key": key},
    ):  # fmt: skip
        said.add(refusal(send(tenants, method, path, headers), 401))
    for wrong in ("wl-wrong", "x" * 600, key[:-1], key + "x", key.upper(), f"{key} {key}", "\xe4"):
        headers = {"Authorization": f"Bearer {wrong}"}
        said.add(refusal(send(tenants, method, path, headers), 401))
    # One for a key that is missing, one for a key that is wrong; neither repeats it.
    assert len(said) == 2
    assert {one.code for one in said} == {"invalid_api_key"}
    assert {one.type for one in said} == {"authentication_error"}


def test_openai_python_says_so_too(tenants: Tenants) -> None:
    client = tenants.admin.windlass.openai("wl-wrong", max_retries=0)
    assert refused(AuthenticationError, client.models.list).code == "invalid_api_key"


def test_a_key_may_come_as_x_api_key(tenants: Tenants) -> None:
    answer = send(tenants, "GET", "/v1/me", {"X-API-Key": tenants.member.key})
    assert answer.json()["principal"]["key_id"] == tenants.member.key_id


def refused_soon(call: Callable[[], httpx.Response], *, before: int = 200) -> httpx.Response:
    """The first answer that is neither a success nor `before`, which must come within a second."""
    with within(REVOKED_SECONDS):
        return wait_until(
            lambda: answer if (answer := call()).status_code not in (200, before) else None,
            "a refusal",
            every=0.02,
        )


def ends_within_a_second(caller: Caller, end: Callable[[], None]) -> Refusal:
    """The refusal that a key gets after `end`, which must come within a second everywhere."""
    with caller.http() as http:
        body = {"model": "none", "messages": []}
        assert http.get("/v1/me").status_code == 200
        assert http.post("/v1/chat/completions", json=body).status_code in (403, 404)
        end()
        answer = refused_soon(lambda: http.get("/v1/me"))
        refusal(http.post("/v1/chat/completions", json=body), answer.status_code)
        return refusal(answer)


def test_a_revoked_key_ends_within_a_second(tenants: Tenants) -> None:
    owner = tenants.project_owner
    caller = new_key(owner, "project_member", owner.project_id)

    def revoke() -> None:
        with owner.http() as http:
            answer = http.delete(f"/v1/api_keys/{caller.key_id}")
            assert answer.json()["deleted"] is True

    said = ends_within_a_second(caller, revoke)
    assert (said.status, said.code) == (401, "invalid_api_key")
    revoke()


def test_a_key_expires(tenants: Tenants) -> None:
    owner = tenants.project_owner
    caller = new_key(owner, "project_member", owner.project_id, expires_in=5)
    with caller.http() as http:
        assert http.get("/v1/me").status_code == 200
        answer = wait_until(lambda: a if (a := http.get("/v1/me")).status_code != 200 else None)
    assert refusal(answer, 401).code == "invalid_api_key"


def test_an_archived_project_takes_its_keys_along(tenants: Tenants) -> None:
    owner = tenants.owner
    project = new_project(owner, "Short-lived")
    caller = new_key(owner, "project_owner", project)

    def archive() -> None:
        with owner.http() as http:
            answer = http.post(f"/v1/projects/{project}/archive")
            assert answer.json()["status"] == "archived"

    assert ends_within_a_second(caller, archive).status == 401
    with owner.http() as http:
        body = {"name": "x", "project_id": project}
        assert refusal(http.post("/v1/api_keys", json=body), 400).param == "project_id"
        assert project not in http.get("/v1/projects").text
        assert project in http.get("/v1/projects?include_archived=true").text


def test_an_organizations_key_leaves_an_archived_project_too(tenants: Tenants) -> None:
    owner = tenants.owner
    project = new_project(owner, "Short-lived too")
    scoped = {"OpenAI-Project": project}
    with owner.http() as http:
        assert http.get("/v1/files", headers=scoped).status_code == 200
        http.post(f"/v1/projects/{project}/archive")
        said = refusal(refused_soon(lambda: http.get("/v1/files", headers=scoped)), 403)
        assert said.code == "mismatched_project"
        assert http.get("/v1/files").status_code == 200


def test_a_deleted_organization_takes_its_keys_along(tenants: Tenants) -> None:
    admin = tenants.admin
    with admin.http() as http:
        organization = http.post("/v1/organizations", json={"title": "Gone"}).json()["id"]
        scoped = {"OpenAI-Organization": organization}
        body = {"name": "owner", "role": "organization_owner"}
        key = http.post("/v1/api_keys", json=body, headers=scoped).json()["value"]
        with admin.windlass.http(key) as theirs:
            assert theirs.get("/v1/me").status_code == 200
            path = f"/v1/organizations/{organization}"
            assert refusal(http.delete(path), 409).code == "not_confirmed"
            assert theirs.get("/v1/me").status_code == 200
            assert http.delete(path, params={"title": "Gone"}).status_code == 200
            # Until the gateway hears of it, the key's organization is merely not found.
            answer = refused_soon(lambda: theirs.get("/v1/me"), before=404)
            assert refusal(answer, 401).code == "invalid_api_key"
        assert refusal(http.get("/v1/files", headers=scoped)).status in (401, 403)
        assert http.get("/v1/files").status_code == 200
        refusal(http.get(f"/v1/organizations/{organization}"), 404)
        refusal(http.delete(f"/v1/organizations/{organization}"), 404)


def test_members_of_an_organization_come_and_go(tenants: Tenants) -> None:
    owner = tenants.stranger
    with owner.http() as http:
        for role in ("organization_reader", "organization_owner"):
            body = {"user_id": "eve@bolt", "role": role}
            assert http.put("/v1/members", json=body).status_code == 200
        assert [m["id"] for m in http.get("/v1/members").json()["data"]] == ["eve@bolt", "owner"]
        assert http.delete("/v1/members/eve@bolt").status_code == 200
        assert [m["id"] for m in http.get("/v1/members").json()["data"]] == ["owner"]


def test_a_foreign_scope_is_refused_by_its_class(tenants: Tenants) -> None:
    client = tenants.member.windlass.openai(
        tenants.member.key, project=tenants.sibling.project_id, max_retries=0
    )
    said = refused(PermissionDeniedError, client.files.list)
    assert said.code == "mismatched_project"
    client = tenants.member.windlass.openai(
        tenants.member.key, organization=tenants.stranger.organization_id, max_retries=0
    )
    assert refused(PermissionDeniedError, client.files.list).code == "mismatched_organization"


def test_a_reader_runs_nothing(tenants: Tenants) -> None:
    client = tenants.reader.openai()
    for call in (client.files.list, client.models.list, client.fine_tuning.jobs.list):
        assert refused(PermissionDeniedError, call).code == "insufficient_permissions"
    said = refused(PermissionDeniedError, client.chat.completions.create, model="x", messages=[])
    assert said.type == "permission_error"
