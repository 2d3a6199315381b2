"""An owner gets all that is their organization's: no secret of it, and nothing of another."""

import hashlib
import io
import json
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.services.filled_tenant import Tenant, ok, run
from tests.support.services.front import MODULES, Front, running_front
from tests.support.waiting import until

from windlass.client.transport.urls import at
from windlass.core.leaving.claims import Fate
from windlass.migrations.tables import load_claims

# In names and contents of one tenant alone.
MARK, OTHER = "zyxacme", "bystander"
OWNER = "ann"


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    modules = (*MODULES, "federation", "inference")
    leaving = {"grace_seconds": 3600}
    async with running_front(database_url, tmp_path / "data", modules, leaving=leaving) as front:
        yield front


@asynccontextmanager
async def owned(tenant: Tenant, user: str = OWNER, **key: Any) -> AsyncIterator[httpx.AsyncClient]:
    """An owner of a tenant, by a key of their own."""
    role = "organization_owner"
    await ok(tenant.http.put("/v1/members", json={"user_id": user, "role": role}))
    body = {"name": f"{user} key", "role": role, "user_id": user, **key}
    made = await ok(tenant.http.post("/v1/api_keys", json=body))
    async with tenant.front.http(made["value"]) as http:
        http.headers["X-Test-Key"] = made["value"]
        yield http


async def collected(http: httpx.AsyncClient, *, personal: bool = False) -> dict[str, Any]:
    made = await ok(http.post("/v1/exports", json={"personal": personal}))

    async def shown() -> dict[str, Any]:
        found: dict[str, Any] = await ok(http.get(at("/v1/exports", made["id"])))
        return found

    done: dict[str, Any] = await until(shown, holds=lambda found: found["state"] == "ready")
    return done


async def downloaded(http: httpx.AsyncClient, export: dict[str, Any]) -> dict[str, bytes]:
    """The files of an archive, after its manifest was compared with them."""
    answer = await http.get(at("/v1/exports", export["id"], "content"))
    assert answer.status_code == 200, answer.text
    assert len(answer.content) == export["bytes"]
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        files = {one.name: _read(archive, one) for one in archive}
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["export_id"] == export["id"]
    told = {one["name"]: (one["bytes"], one["sha256"]) for one in manifest["files"]}
    found = {name: (len(at_), hashlib.sha256(at_).hexdigest()) for name, at_ in files.items()}
    assert told == found
    return files


def _read(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(entry)
    assert file
    return file.read()


def rows(files: dict[str, bytes], name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files[f"{name}.jsonl"].splitlines()]


def secrets_of(front: Front) -> set[bytes]:
    """Everything in columns of bytes, as JSON could have it, and every seal in columns of text."""
    named = run(
        front,
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND (data_type = 'bytea' OR column_name IN"
        " ('wrapped', 'details_digest', 'details_salt', 'lease_owner'))"
        " AND table_name NOT LIKE 'core_export%%' AND table_name NOT LIKE 'files_%%'",
    )
    found: set[bytes] = set()
    for table, column in named:
        for (value,) in run(front, f'SELECT "{column}" FROM "{table}"'):
            if isinstance(value, bytes):
                found |= {value, value.hex().encode()}
            elif value:
                found.add(value.encode())
    return {value for value in found if len(value) > 8}


async def test_an_owner_gets_all_and_nobodys_secrets(front: Front) -> None:
    tenant, other = await Tenant.made(front, MARK), await Tenant.made(front, OTHER)

    async def is_logged() -> bool:
        team = "SELECT id FROM rbac_audit_events WHERE after LIKE '%zyxacme team%'"
        return bool(run(front, team))

    await until(is_logged)
    # As if the tenant's version had been granted to the other.
    grant = (
        "INSERT INTO models_models (project_id, name, version_id, revision)"
        " VALUES (%(other)s, 'bystander-granted', 'mv-zyxacme', 9999)"
    )
    run(front, grant, other=other.project)
    async with owned(tenant) as http:
        export = await collected(http)
        files = await downloaded(http, export)
        key = http.headers["X-Test-Key"]
    content = b"".join(files.values())
    for table in (
        "files/tables/files_files", "models/tables/models_versions", "jobs/tables/jobs_events",
        "jobs/tables/jobs_webhooks", "usage/tables/usage_records", "users/tables/users_people",
        "users/tables/users_groups", "users/tables/users_roles", "users/tables/users_invites",
        "users/tables/users_projects", "users/tables/users_secrets",
        "rbac/tables/rbac_audit_events", "inference/tables/inference_servings",
        "users/tables/users_organizations",
    ):  # fmt: skip
        assert MARK.encode() in files[f"{table}.jsonl"], table
    objects = {name.split("/")[2] for name in files if "/objects/" in name}
    assert objects == {"files", "models", "artifacts", "logs", "tuning"}
    assert files[f"models/objects/models/mv-{MARK}/config.json"] == MARK.encode()
    assert set(files) >= {
        f"{claims.service}/tables/{one.table.name}.jsonl"
        for claims in load_claims()
        for one in claims.tables
        if one.fate is not Fate.NOBODYS and not one.unexported
    }
    for others in (OTHER, other.id, other.project, f"{MARK}-secret", tenant.secret, key):
        assert others.encode() not in content, others
    assert not [value for value in secrets_of(front) if value in content]
    assert "digest" not in rows(files, "users/tables/users_api_keys")[0]
    counted = {one["service"]: one for one in export["steps"]}
    assert counted["jobs"]["objects"] == 2
    assert counted["jobs"]["rows"]["jobs_events"] == 1
    assert sum(one["bytes"] for one in export["steps"]) == len(content)
    await tenant.close()
    await other.close()


async def test_a_download_goes_on_where_it_was_broken_off(front: Front) -> None:
    tenant = await Tenant.made(front, MARK)
    async with owned(tenant) as http:
        export = await collected(http)
        path = at("/v1/exports", export["id"], "content")
        whole = (await http.get(path)).content
        for start, end in ((1, 2), (500, 515), (511, 4000), (len(whole) - 3, len(whole))):
            part = await http.get(path, headers={"Range": f"bytes={start}-{end - 1}"})
            assert (part.status_code, part.content) == (206, whole[start:end])
            assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{len(whole)}"
        beyond = await http.get(path, headers={"Range": f"bytes={len(whole)}-"})
        assert beyond.status_code == 416
    await tenant.close()


async def test_only_owners_with_all_their_powers_export(front: Front) -> None:
    tenant, other = await Tenant.made(front, MARK), await Tenant.made(front, OTHER)
    async with owned(tenant) as http, owned(other) as stranger:
        export = await collected(http)
        shown = at("/v1/exports", export["id"])
        for path in (shown, f"{shown}/content"):
            assert (await stranger.get(path)).status_code == 404
        assert (await ok(stranger.get("/v1/exports")))["data"] == []
        async with owned(tenant, scopes=["projects.write", "files.read"]) as narrow:
            assert (await narrow.post("/v1/exports", json={})).status_code == 403
            assert (await narrow.post("/v1/exports", json={"personal": True})).status_code == 403
            for path in ("/v1/exports", shown, f"{shown}/content"):
                assert (await narrow.get(path)).status_code == 403
        # A project's own owner is none of the organization's.
        async with front.http(tenant.secret) as own:
            assert (await own.post("/v1/exports", json={})).status_code == 403
            assert (await own.get(shown)).status_code in (403, 404)
        # Who administers the platform does not have what is a tenant's, unless they are there.
        await ok(http.delete("/v1/members/owner"))
        assert (await tenant.http.post("/v1/exports", json={})).status_code == 403
        assert (await tenant.http.get(f"{shown}/content")).status_code in (403, 404)

        async def actions() -> set[str]:
            listed = await ok(http.get("/v1/audit_events", params={"limit": 100}))
            return {one["action"].rpartition("/")[2] for one in listed["data"]}

        assert (await http.get(f"{shown}/content")).status_code == 200
        await until(actions, holds=lambda found: found >= {"CreateExport", "OpenExport"})
    await tenant.close()
    await other.close()


async def test_one_at_a_time_and_none_after_an_erasure_began(front: Front) -> None:
    tenant = await Tenant.made(front, MARK)
    objects = front.app.settings.data_dir / "objects" / "content" / "exports"
    async with owned(tenant) as http:
        first = await collected(http)
        second = await collected(http)
        assert first["id"] != second["id"]
        assert (await http.get(at("/v1/exports", first["id"]))).status_code == 404
        listed = await ok(http.get("/v1/exports"))
        assert [one["id"] for one in listed["data"]] == [second["id"]]

        async def is_removed() -> bool:
            return not list(objects.glob(f"*/{first['id']}"))

        await until(is_removed)
        run(front, "UPDATE core_exports SET expires_at = 1")
        front.app.wake.touch("exports")

        async def is_swept() -> bool:
            left = "SELECT 1 FROM core_exports UNION ALL SELECT 1 FROM core_export_parts"
            return not run(front, left) and not objects.exists()

        await until(is_swept)
        third = await collected(http)
        title = {"title": f"{MARK} research"}
        erasure = await ok(http.delete(f"/v1/projects/{tenant.project}", params=title))
        # Scheduled, but not begun.
        assert (await ok(http.get(at("/v1/exports", third["id"]))))["state"] == "ready"
        run(front, "UPDATE core_erasures SET erase_at = 0")
        front.app.wake.touch("erasures")

        async def state() -> str:
            return str((await ok(http.get(at("/v1/erasures", erasure["id"]))))["state"])

        await until(state, holds=lambda found: found == "erased")
        assert await is_swept()
        run(front, "UPDATE core_erasures SET state = 'erasing'")
        refused = await http.post("/v1/exports", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "being_erased")
    await tenant.close()


async def test_a_person_gets_what_is_known_of_them_and_of_nobody_else(front: Front) -> None:
    tenant = await Tenant.made(front, MARK)
    about = (
        "INSERT INTO users_people (organization_id, user_id, email, name, created_at, updated_at)"
        " VALUES (%(org)s, %(who)s, %(who)s || '@mail.example', %(who)s, 1, 1);"
        "INSERT INTO usage_records (id, at_ms, organization_id, project_id, user_id, key_id, model,"
        " kind, input_tokens, output_tokens, duration_ms, time_to_first_token_ms, status)"
        " VALUES ('use-' || %(who)s, 1, %(org)s, 'p', %(who)s, 'k', 'm', 1, 5, 6, 1, 1, 200);"
    )
    member = {"user_id": "bob", "role": "organization_reader"}
    async with owned(tenant) as http:
        for who in (OWNER, "bob"):
            run(front, about, org=tenant.id, who=who)
        await ok(http.put("/v1/members", json=member))
        body = {"name": "bob key", "role": "organization_reader", "user_id": "bob"}
        key = (await ok(tenant.http.post("/v1/api_keys", json=body)))["value"]
        whole = await collected(http)
        async with front.http(key) as bob:
            mine = await collected(bob, personal=True)
            assert mine["user_id"] == "bob"
            files = await downloaded(bob, mine)
            assert [one["id"] for one in (await ok(bob.get("/v1/exports")))["data"]] == [mine["id"]]
            assert (await bob.get(at("/v1/exports", whole["id"]))).status_code == 404
        # Not the owner's either: it is about bob alone.
        assert (await http.get(at("/v1/exports", mine["id"]))).status_code == 404
        content = b"".join(files.values())
        assert rows(files, "users/tables/users_people")[0]["email"] == "bob@mail.example"
        assert [one["id"] for one in rows(files, "usage/tables/usage_records")] == ["use-bob"]
        assert [one["name"] for one in rows(files, "users/tables/users_api_keys")] == ["bob key"]
        for others in (MARK, f"{OWNER}@", f'"{OWNER}"', '"owner"', key):
            assert others.encode() not in content, others
        assert not [name for name in files if "/objects/" in name]
        # Whoever leaves takes the copies with them.
        await ok(http.delete("/v1/members/bob"))

        async def is_gone() -> bool:
            return not run(front, "SELECT 1 FROM core_exports WHERE user_id = 'bob'")

        await until(is_gone)
    await tenant.close()


async def test_a_key_for_less_than_its_person_may_gets_nothing_of_them(front: Front) -> None:
    tenant = await Tenant.made(front, MARK)
    async with owned(tenant):
        body = {"name": "ci", "role": "project_viewer", "user_id": OWNER}
        asked = {**body, "project_id": tenant.project}
        key = (await ok(tenant.http.post("/v1/api_keys", json=asked)))["value"]
        async with front.http(key) as narrow:
            refused = await narrow.post("/v1/exports", json={"personal": True})
            assert refused.status_code == 403
    await tenant.close()
