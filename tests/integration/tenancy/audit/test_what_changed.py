"""Events of changes tell what was there before and after, and no secret."""

import json
from pathlib import Path
from typing import Any

from tests.support.services.front import MODULES, running_front
from tests.support.services.member_keys import Key, join, project
from tests.support.waiting import until


async def send(owner: Key, method: str, path: str, **body: Any) -> Any:
    """The answer to a request that must succeed."""
    answer = await owner.ask(method, path, json=body or None)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def told(owner: Key, last: str) -> dict[str, tuple[str, Any, Any]]:
    """Resource, before and after of the newest changes by RPC, once `last` is the newest."""

    async def events() -> dict[str, tuple[str, Any, Any]]:
        params = {"limit": 1000, "order": "asc"}
        rows = (await owner.ask("GET", "/v1/audit_events", params=params)).json()["data"]
        found: dict[str, tuple[str, Any, Any]] = {}
        for one in rows:
            if one["outcome"] == "OK" and "/List" not in one["action"]:
                name = one["action"].rpartition("/")[2]
                found.pop(name, None)
                details = [json.loads(one[side] or "{}") for side in ("before", "after")]
                found[name] = (one["resource"], *details)
        return found

    return await until(events, holds=lambda found: [*found][-1:] == [last])


async def test_members_and_their_keys(owner: Key) -> None:
    room = await project(owner)
    bob = await join(owner, "bob", "project_member", room)
    await send(owner, "PATCH", f"/v1/api_keys/{bob.id}", name="renamed", scopes=["files.read"])
    rotated = await send(owner, "POST", f"/v1/api_keys/{bob.id}/rotate", overlap=0)
    titled = {"user_id": "bob", "project_id": room, "title": "Bob Bobson"}
    await send(owner, "PUT", "/v1/members", role="project_viewer", **titled)
    found = await told(owner, "PutMember")
    resource, before, after = found["CreateApiKey"]
    assert (resource, before) == (bob.id, {})
    assert (after["user_id"], after["role"], after["project_id"]) == ("bob", "project_member", room)
    _, before, after = found["UpdateApiKey"]
    assert (before["name"], after["name"]) == ("project_member", "renamed")
    assert (before["scopes"], after["scopes"]) == ([], ["files.read"])
    assert after["id"] == bob.id
    assert "created_at" not in after
    _, before, after = found["RotateApiKey"]
    assert before["redacted"] != after["redacted"]
    resource, before, after = found["PutMember"]
    assert (resource, before) == ("bob", {"role": "project_member"})
    assert after == {
        "organization_id": after["organization_id"], "project_id": room, "user_id": "bob",
        "kind": "person", "role": "project_viewer",
    }  # fmt: skip
    await owner.revoke(bob)
    await owner.remove("bob", project_id=room)
    found = await told(owner, "RemoveMember")
    assert found["RevokeApiKey"][1]["revoked_at"] == 0 < found["RevokeApiKey"][2]["revoked_at"]
    assert found["RemoveMember"][1]["role"] == "project_viewer"
    assert found["RemoveMember"][2] == {}
    shown = json.dumps(found)
    # The name of who leaves is not in the log.
    for secret in (bob.secret, rotated["value"], "Bobson"):
        assert secret not in shown


async def test_what_is_asked_in_vain_is_told_without_details(owner: Key) -> None:
    room = await project(owner)
    await send(owner, "POST", f"/v1/organization/projects/{room}", name="Red")
    taken = await owner.ask("POST", "/v1/projects", json={"title": "Red"})
    assert taken.status_code == 409
    await send(owner, "PUT", "/v1/secrets/wandb", value="hunter2")
    found = await told(owner, "PutSecret")
    assert found["UpdateProject"][1]["title"].startswith("p")
    assert found["UpdateProject"][2] == {
        "id": room, "organization_id": found["UpdateProject"][2]["organization_id"], "title": "Red",
    }  # fmt: skip
    assert found["PutSecret"][2]["name"] == "wandb"
    rows = (await owner.ask("GET", "/v1/audit_events", params={"limit": 1000})).json()["data"]
    (failed,) = [one for one in rows if one["outcome"] == "ALREADY_EXISTS"]
    assert (failed["before"], failed["after"]) == ("", "")
    assert "hunter2" not in json.dumps(rows)


async def test_roles_groups_policies_and_quotas(owner: Key) -> None:
    roles, groups = "/v1/organization/roles", "/v1/organization/groups"
    made = await send(owner, "POST", roles, role_name="r", permissions=["jobs.read"])
    await send(owner, "POST", f"{roles}/{made['id']}", permissions=["files.read"])
    group = await send(owner, "POST", groups, name="g")
    path = f"{groups}/{group['id']}"
    await send(owner, "POST", f"{path}/users", user_id="owner")
    await send(owner, "POST", f"{path}/roles", role_id=made["id"])
    await send(owner, "DELETE", f"{path}/roles/{made['id']}")
    await send(owner, "DELETE", path)
    await send(owner, "PUT", "/v1/organization/key_policy", unused_days=90)
    room = await project(owner)
    await send(owner, "PUT", "/v1/quotas/engines", project_id=room, bound=3)
    found = await told(owner, "PutProjectQuota")
    assert found["CreateRole"][0] == made["id"]
    assert found["UpdateRole"][1]["permissions"] == ["jobs.read"]
    assert found["UpdateRole"][2]["permissions"] == ["files.read"]
    assert found["CreateGroup"] == (group["id"], {}, found["CreateGroup"][2])
    assert found["AddToGroup"][2]["user_id"] == "owner"
    assert found["AssignRole"][2]["group_id"] == group["id"]
    assert found["UnassignRole"][1]["role_id"] == made["id"]
    assert found["DeleteGroup"][1]["name"] == "g"
    assert (found["PutKeyPolicy"][1]["unused_days"], found["PutKeyPolicy"][2]["unused_days"]) == (
        0, 90,
    )  # fmt: skip
    assert found["PutProjectQuota"][2] == {"scope_id": room, "name": "engines", "bound": 3}


async def test_clusters_their_assignments_and_stacks(database_url: str, tmp_path: Path) -> None:
    modules = (*MODULES, "inference")
    async with running_front(database_url, tmp_path / "data", modules) as front:
        owner = Key(front, "", front.owner_key, {})
        room = await project(owner)
        made = await send(owner, "POST", "/v1/clusters", name="east", executor="process")
        path = f"/v1/clusters/{made['id']}"
        await send(owner, "PATCH", path, shared=True)
        await send(owner, "PUT", f"{path}/assignments/{room}", price_micros=5)
        await send(owner, "DELETE", f"{path}/assignments/{room}")
        stack = {"cluster_id": made["id"], "url": "https://stack.example", "key": "sk-hunter2"}
        await send(owner, "PUT", "/v1/stacks/vllm", **stack)
        await send(owner, "PUT", "/v1/stacks/vllm", **stack, max_concurrency=3)
        await send(owner, "DELETE", "/v1/stacks/vllm")
        found = await told(owner, "DeleteStack")
    assert found["RegisterCluster"][:2] == (made["id"], {})
    assert found["RegisterCluster"][2]["name"] == "east"
    assert made["registration_key"] not in json.dumps(found)
    assert found["UpdateCluster"][1] == {"shared": False}
    assert found["UpdateCluster"][2] == {"shared": True}
    assert found["PutAssignment"][2]["project_id"] == room
    assert found["DeleteAssignment"][1]["price_micros"] == 5
    assert found["PutStack"][1]["max_concurrency"] == 0
    assert found["PutStack"][2]["max_concurrency"] == 3
    assert found["DeleteStack"][1]["max_concurrency"] == 3
    assert "hunter2" not in json.dumps(found)
