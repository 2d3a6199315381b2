"""Projects and organizations leave: at once, back again, and for good, with nothing left behind."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes.front_door import GOOD, jsonl
from tests.support.services.filled_tenant import Tenant, ok, run
from tests.support.services.front import MODULES, Front, running_front
from tests.support.waiting import until

from windlass.audit_chain.checkpoints import CheckpointKey
from windlass.client.transport.urls import at

# In names and contents of one tenant alone.
MARK = "zyxacme"
GRACE_SECONDS = 3600


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    modules = (*MODULES, "federation", "inference")
    leaving = {"grace_seconds": GRACE_SECONDS}
    async with running_front(database_url, tmp_path / "data", modules, leaving=leaving) as front:
        yield front


def dump(front: Front, text: str) -> dict[str, list[str]]:
    """The rows of all tables that have a text anywhere, and the objects that have it."""
    names = run(front, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    query = "SELECT row::text FROM {} AS row WHERE row::text ILIKE '%%{}%%'"
    found = {name: [one for (one,) in run(front, query.format(name, text))] for (name,) in names}
    content = front.app.settings.data_dir / "objects" / "content"
    assert content.is_dir()
    files = [path for path in content.rglob("*") if path.is_file()]
    found["objects"] = [str(path) for path in files if text in str(path).lower()
                        or text.encode() in path.read_bytes()]  # fmt: skip
    return {name: rows for name, rows in found.items() if rows}


def counts(front: Front, text: str) -> dict[str, int]:
    """How much of it there is; events of the audit log come when they come."""
    found = {name: len(rows) for name, rows in dump(front, text).items()}
    return {name: number for name, number in found.items() if name != "rbac_audit_events"}


async def erased(front: Front, erasure: dict[str, Any]) -> dict[str, Any]:
    """Lets the grace period be over, and waits until all is erased."""
    run(front, "UPDATE core_erasures SET erase_at = 0 WHERE id = %(id)s", id=erasure["id"])
    front.app.wake.touch("erasures")
    async with front.http() as http:

        async def shown() -> dict[str, Any]:
            found: dict[str, Any] = await ok(http.get(at("/v1/erasures", erasure["id"])))
            return found

        done: dict[str, Any] = await until(shown, holds=lambda found: found["state"] == "erased")
        return done


async def test_an_organization_leaves_nothing_but_ids(front: Front) -> None:
    tenant, other = await Tenant.made(front, MARK), await Tenant.made(front, "bystander")

    async def is_logged() -> bool:
        """Whether the log has the last event with the other's name."""
        team = "SELECT id FROM rbac_audit_events WHERE after LIKE '%bystander team%'"
        return bool(run(front, team))

    await until(is_logged)
    before = counts(front, "bystander")
    assert len(dump(front, MARK)) > 12
    async with front.http() as http:
        path = f"/v1/organizations/{tenant.id}"
        erasure = await ok(http.delete(path, params={"title": f"{MARK} Ltd"}))
        assert (erasure["state"], erasure["project_id"]) == ("scheduled", None)
        assert erasure["erase_at"] == erasure["asked_at"] + GRACE_SECONDS
        async with front.http(tenant.secret) as own:

            async def is_out() -> bool:
                return (await own.get("/v1/files")).status_code == 401

            await until(is_out, seconds=2)
        done = await erased(front, erasure)
    left = dump(front, MARK)
    assert set(left) <= {"rbac_audit_events"}, left
    # A secret is named by its name alone, which so is its id.
    assert all(row.count(MARK) == row.count(f"{MARK}_wandb") for rows in left.values()
               for row in rows), left  # fmt: skip
    assert counts(front, "bystander") == before
    told = "SELECT count(*), max(before || after || details_salt) FROM rbac_audit_events WHERE"
    ((events, details),) = run(front, f"{told} organization_id = %(id)s", id=tenant.id)
    assert (events > 5, details) == (True, "")
    usage = run(front, "SELECT model, input_tokens FROM usage_records WHERE organization_id ="
                " %(id)s", id=tenant.id)  # fmt: skip
    assert [(row[0][:7], row[1]) for row in usage] == [("erased-", 5)]
    key = CheckpointKey.public(json.loads(done["public_key"]))
    claims = key.verify_claims("windlass-erasure-report", done["report"])
    services = claims["services"]
    assert services["files"] == {"bytes": len(jsonl([GOOD] * 20)), "objects": 1,
                                 "rows": {"files_files": 1, "files_uploads": 1}}  # fmt: skip
    assert services["jobs"]["objects"] == 2
    assert services["jobs"]["rows"]["jobs_events"] == 1
    assert services["models"]["bytes"] == len(MARK)
    await tenant.close()
    await other.close()


async def test_a_project_comes_back_whole_without_its_keys(front: Front) -> None:
    tenant = await Tenant.made(front, MARK)
    path = f"/v1/projects/{tenant.project}"
    refused = await tenant.http.delete(path, params={"title": "research"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_confirmed")
    erasure = await ok(tenant.http.delete(path, params={"title": f"{MARK} research"}))
    again = await ok(tenant.http.delete(path, params={"title": f"{MARK} research"}))
    assert again["id"] == erasure["id"]
    before = counts(front, MARK)
    assert (await ok(tenant.http.get(path)))["status"] == "archived"
    undone = await ok(tenant.http.post(f"{path}/undelete"))
    assert undone["state"] == "undone"
    assert (await ok(tenant.http.get(path)))["status"] == "active"
    assert counts(front, MARK) == before
    async with front.http(tenant.secret) as own:
        assert (await own.get("/v1/files")).status_code == 401
    second = await tenant.http.post(f"{path}/undelete")
    assert (second.status_code, second.json()["error"]["code"]) == (409, "not_scheduled")
    erasure = await ok(tenant.http.delete(path, params={"title": f"{MARK} research"}))
    done = await erased(front, erasure)
    assert done["project_id"] == tenant.project
    left = dump(front, MARK)
    assert "rbac_audit_events" not in dump(front, f"{MARK} research")
    assert (await ok(tenant.http.get("/v1/audit_events/verification")))["fault"] is None
    # What is the organization's stays.
    assert "users_groups" in left
    assert not set(left) & {"files_files", "models_models", "jobs_jobs", "users_secrets", "objects"}
    assert (await tenant.http.post(f"{path}/undelete")).status_code == 409
    await tenant.close()


async def test_a_project_that_is_made_meanwhile_leaves_too(front: Front) -> None:
    """Projects come while the organization goes: each is refused, or leaves with it."""
    async with front.http() as http:
        made = await ok(http.post("/v1/organizations", json={"title": "Hurried"}))
    there = {"OpenAI-Organization": made["id"]}
    async with front.http(**there) as http:
        path = at("/v1/organizations", made["id"])
        came = [http.post("/v1/projects", json={"title": f"p{number}"}) for number in range(12)]
        deletion = http.request("DELETE", path, params={"title": "Hurried"})
        *_, deleted = await asyncio.gather(*came, deletion)
    assert deleted.is_success, deleted.text
    query = "SELECT id FROM users_projects WHERE organization_id = %(id)s"
    there_are = {one for (one,) in run(front, query, id=made["id"])}
    query = "SELECT unnest(project_ids) FROM core_erasures WHERE organization_id = %(id)s"
    assert there_are == {one for (one,) in run(front, query, id=made["id"])}


async def test_a_hold_stops_what_is_due_and_an_owner_may_leave(front: Front) -> None:
    tenant = await Tenant.made(front, MARK)
    async with front.http() as http:
        body = {"name": "owner", "role": "organization_owner", "user_id": "ann"}
        member = {"user_id": "ann", "role": "organization_owner"}
        await ok(tenant.http.put("/v1/members", json=member))
        key = await ok(tenant.http.post("/v1/api_keys", json=body))
        async with front.http(key["value"]) as own:
            other = "/v1/organizations/org-of-somebody"
            assert (await own.delete(other, params={"title": "x"})).status_code == 404
            assert (await own.post(f"/v1/organizations/{tenant.id}/hold")).status_code == 403
            path = f"/v1/organizations/{tenant.id}"
            assert (await own.delete(path)).status_code == 409
            narrow = {**body, "scopes": ["projects.write"]}
            scoped = await ok(own.post("/v1/api_keys", json=narrow))
            async with front.http(scoped["value"]) as by_scoped:
                refused = await by_scoped.delete(path, params={"title": f"{MARK} Ltd"})
                assert refused.status_code == 403
            await ok(http.post(f"{path}/hold"))
            erasure = await ok(own.delete(path, params={"title": f"{MARK} Ltd"}))
            assert erasure["state"] == "held"
        run(front, "UPDATE core_erasures SET erase_at = 0")
        front.app.wake.touch("erasures")
        shown = await ok(http.get("/v1/erasures"))
        assert [(one["id"], one["state"]) for one in shown["data"]] == [(erasure["id"], "held")]
        assert dump(front, MARK)["files_files"]
        await ok(http.post(f"{path}/undelete"))
        assert (await ok(http.get(path)))["title"] == f"{MARK} Ltd"
        erasure = await ok(http.delete(path, params={"title": f"{MARK} Ltd"}))
        await ok(http.post(f"{path}/release"))
        assert (await erased(front, erasure))["state"] == "erased"
        assert (await http.post("/v1/organizations/org-none/hold")).status_code == 404
    await tenant.close()


async def test_a_project_that_was_erased_is_in_no_geography(
    database_url: str, tmp_path: Path
) -> None:
    """Whoever places something would hear of it for ever."""
    stores, leaving = {"objects": "EU", "database": "EU"}, {"grace_seconds": GRACE_SECONDS}
    modules, data = (*MODULES, "federation", "inference"), tmp_path / "data"
    sections: dict[str, Any] = {"residency": stores, "leaving": leaving}
    query = "SELECT geography FROM users_projects WHERE id = %(id)s"
    async with (
        running_front(database_url, data, modules, **sections) as front,
        front.http() as http,
    ):
        made = await ok(http.post("/v1/projects", json={"title": "gone", "geography": "EU"}))
        path = at("/v1/projects", made["id"])
        erasure = await ok(http.delete(path, params={"title": "gone"}))
        assert run(front, query, id=made["id"]) == [("EU",)]
        await erased(front, erasure)
        assert run(front, query, id=made["id"]) == [("",)]
