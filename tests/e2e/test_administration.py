"""Organizations, projects, members, keys, secrets and the audit log, over HTTP."""

from typing import Any

import httpx
import pytest
from tests.support.clients.refusals import refusal
from tests.support.factories.tenants import Caller, Tenants, new_key
from tests.support.processes.front_door import Front
from tests.support.waiting import wait_until

VALUE = "wandb-s3cr3t-value"


def listed(http: httpx.Client, path: str) -> list[dict[str, Any]]:
    answer = http.get(path, params={"limit": 100})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["data"])


def test_owners_see_their_organization_and_its_projects(tenants: Tenants) -> None:
    owner = tenants.owner
    with owner.http() as http:
        (organization,) = listed(http, "/v1/organizations")
        assert organization["id"] == owner.organization_id
        assert http.get(f"/v1/organizations/{owner.organization_id}").json() == organization
        titles = {project["title"]: project for project in listed(http, "/v1/projects")}
        assert {"Default project", "Main", "Side"} <= set(titles)
        assert titles["Default project"]["is_default"] is True
        refusal(http.post("/v1/projects", json={"title": "Main"}), 409)
        default = titles["Default project"]["id"]
        refusal(http.post(f"/v1/projects/{default}/archive"), 400)
    with tenants.member.http() as http:
        assert [one["id"] for one in listed(http, "/v1/projects")] == [tenants.member.project_id]
    with tenants.reader.http() as http:
        assert set(titles) <= {one["title"] for one in listed(http, "/v1/projects")}


@pytest.mark.parametrize("title", ["", " ", "x" * 101, "a\nb", "a\x07b", "\u202eabc"])
def test_a_title_is_text_to_show(tenants: Tenants, title: str) -> None:
    with tenants.owner.http() as http:
        assert refusal(http.post("/v1/projects", json={"title": title}), 400).param == "title"
        body = {"name": title}
        assert refusal(http.post("/v1/api_keys", json=body), 400).param == "name"


def test_a_key_is_shown_once(front: Front, tenants: Tenants) -> None:
    owner = tenants.project_owner
    with owner.http() as http:
        made = http.post("/v1/api_keys", json={"name": "ci"}).json()
        secret = made.pop("value")
        assert secret.startswith("wl-")
        assert made["redacted_value"] == f"wl-...{secret[-4:]}"
        assert made["role"] == "project_member"
        again = next(one for one in listed(http, "/v1/api_keys") if one["id"] == made["id"])
        assert secret not in str(again)
        assert "value" not in again
    held = front.rows("SELECT k::text FROM users_api_keys k WHERE id = %s", made["id"])
    assert secret not in str(held)
    assert secret not in front.windlass.log()


@pytest.mark.parametrize(
    ("who", "role", "status"),
    [
        ("member", "project_owner", 403), ("member", "organization_owner", 400),
        ("member", "platform_admin", 400), ("project_owner", "organization_reader", 400),
        ("project_owner", "platform_admin", 400), ("owner", "platform_admin", 403),
        ("reader", "organization_reader", 403), ("owner", "king", 400), ("owner", "unknown", 400),
        ("owner", "unspecified", 400), ("owner", "", 400),
    ],
)  # fmt: skip
def test_nobody_gives_more_than_it_has(tenants: Tenants, who: str, role: str, status: int) -> None:
    caller: Caller = getattr(tenants, who)
    with caller.http() as http:
        body = {"name": "up", "role": role}
        assert refusal(http.post("/v1/api_keys", json=body)).status in (status, 403)
        body = {"user_id": "eve", "role": role}
        assert refusal(http.put("/v1/members", json=body)).status in (status, 403)


def test_the_weak_end_no_key_of_the_strong(tenants: Tenants) -> None:
    """Keys made by one person carry its name: the power of the key decides, not the name."""
    strong = (tenants.owner, tenants.project_owner, tenants.reader)
    with tenants.member.http() as http:
        for target in strong:
            assert refusal(http.delete(f"/v1/api_keys/{target.key_id}")).status in (403, 404)
    with tenants.project_owner.http() as http:
        for target in (tenants.owner, tenants.reader, tenants.sibling):
            refusal(http.delete(f"/v1/api_keys/{target.key_id}"), 404)
    for caller in strong:
        with caller.http() as http:
            assert http.get("/v1/me").status_code == 200


def test_an_owner_does_not_lock_the_platforms_administrator_out(tenants: Tenants) -> None:
    admin = tenants.admin
    local = new_key(admin, "organization_owner")
    with local.http() as http:
        refusal(http.delete(f"/v1/api_keys/{admin.key_id}"), 403)
        refusal(http.delete("/v1/members/owner"), 403)
        body = {"user_id": "owner", "role": "organization_reader"}
        refusal(http.put("/v1/members", json=body), 403)
    with admin.http() as http:
        assert http.get("/v1/me").status_code == 200
        path = f"/v1/organizations/{admin.organization_id}"
        refusal(http.delete(path), 409)
        confirmed = {"title": http.get(path).json()["title"]}
        assert "last owner" in refusal(http.delete(path, params=confirmed)).message
        assert http.get("/v1/me").status_code == 200


def test_members_come_change_and_go(tenants: Tenants) -> None:
    owner = tenants.project_owner
    with owner.http() as http:
        for role in ("project_member", "project_owner"):
            body = {"user_id": "bob@acme", "role": role, "project_id": owner.project_id}
            assert http.put("/v1/members", json=body).json()["role"] == role
        members = {one["id"]: one["role"] for one in listed(http, "/v1/members")}
        assert members["bob@acme"] == "project_owner"
        assert http.delete("/v1/members/bob@acme").status_code == 200
        assert "bob@acme" not in {one["id"] for one in listed(http, "/v1/members")}
    with tenants.reader.http() as http:
        assert "owner" in {one["id"] for one in listed(http, "/v1/members")}
        scoped = http.get("/v1/members", params={"project_id": owner.project_id})
        assert scoped.status_code == 200


@pytest.mark.parametrize("user", ["", "a b", "../x", "a\nb", "x" * 300, "-x", "é"])
def test_a_member_has_a_name_that_an_issuer_gives(tenants: Tenants, user: str) -> None:
    with tenants.owner.http() as http:
        body = {"user_id": user, "role": "organization_reader"}
        assert refusal(http.put("/v1/members", json=body), 400).param == "user_id"


def test_a_secret_is_never_told(front: Front, tenants: Tenants) -> None:
    with tenants.project_owner.http() as http:
        answers = [http.put("/v1/secrets/wandb", json={"value": VALUE})]
        answers += [http.get("/v1/secrets"), http.get("/v1/secrets/wandb")]
        answers += [http.put("/v1/secrets/wandb", json={"value": VALUE + "2"})]
        answers += [http.put("/v1/secrets/wandb", json={"value": [VALUE]})]
        answers += [http.put("/v1/secrets/wandb", json={"value": VALUE, "x": VALUE})]
        answers += [http.put("/v1/secrets/a b", json={"value": VALUE})]
        answers += [http.put("/v1/secrets/wandb", json={"value": VALUE * 5000})]
    assert [answer.status_code for answer in answers] == [200, 200, 405, 200, 400, 400, 400, 400]
    for answer in answers:
        assert VALUE not in answer.text
    with tenants.member.http() as http:
        assert "wandb" in [one["name"] for one in listed(http, "/v1/secrets")]
        refusal(http.put("/v1/secrets/mine", json={"value": "x"}), 403)
        refusal(http.delete("/v1/secrets/wandb"), 403)
    dump = "".join(
        str(front.rows(f"SELECT t::text FROM {table} t"))
        for table in ("users_secrets", "rbac_audit_events")
    )
    assert VALUE not in dump
    assert VALUE.encode().hex() not in dump
    assert VALUE not in front.windlass.log()
    with tenants.project_owner.http() as http:
        assert http.delete("/v1/secrets/wandb").status_code == 200
        refusal(http.delete("/v1/secrets/wandb"), 404)


def test_changes_and_refused_changes_are_audited(tenants: Tenants) -> None:
    owner, member = tenants.owner, tenants.member
    with owner.http() as http:
        created = http.post("/v1/projects", json={"title": "Audited"})
        project, request_id = created.json()["id"], created.headers["x-request-id"]
    with member.http() as http:
        refused = http.post(f"/v1/projects/{project}/archive")
        assert refusal(refused, 403).code == "insufficient_permissions"
        http.get("/v1/projects")
    with owner.http() as http:

        def events(action: str) -> list[dict[str, Any]]:
            rows = listed(http, "/v1/audit_events")
            return [one for one in rows if one["action"].endswith(f"/{action}")]

        made = wait_until(
            lambda: [one for one in events("CreateProject") if one["request_id"] == request_id]
        )[0]
        assert (made["outcome"], made["key_id"]) == ("OK", owner.key_id)
        tried = wait_until(
            lambda: [one for one in events("ArchiveProject") if one["resource"] == project]
        )[0]
        assert (tried["outcome"], tried["key_id"]) == ("PERMISSION_DENIED", member.key_id)
        assert tried["request_id"] == refused.headers["x-request-id"]
        assert not events("ListProjects")
        older = http.get("/v1/audit_events", params={"after": tried["id"], "limit": 1}).json()
        assert older["data"][0]["at_ms"] <= tried["at_ms"]
    with tenants.member.http() as http:
        refusal(http.get("/v1/audit_events"), 403)


def test_no_name_is_too_long_for_the_audit_log(tenants: Tenants) -> None:
    """Names are the callers' choice: a batch that no message holds would never be stored."""
    with tenants.owner.http() as http:
        answer = http.delete(f"/v1/files/{'x' * 7_000}")
        refusal(answer, 404)
        mine = answer.headers["x-request-id"]
        found = wait_until(
            lambda: [one for one in listed(http, "/v1/audit_events") if one["request_id"] == mine]
        )
        assert found[0]["resource"] == "x" * 256
