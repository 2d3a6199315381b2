"""`windlass external-keys`: a key of Vault from its naming to its end."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.fakes import vault
from tests.support.keepers import moto_server
from tests.support.processes.command import windlass
from tests.support.services.front import Front
from tests.support.waiting import until


async def test_a_key_is_named_checked_used_and_deleted(
    front: Front, tmp_path: Path, organization_id: str
) -> None:
    owner = {"WINDLASS_API_KEY": front.owner_key, "WINDLASS_BASE_URL": front.url}

    async def run(*words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        command = ("external-keys", *words)
        return await asyncio.to_thread(windlass, tmp_path, *command, given=given, **owner)

    async def item(*words: str, given: str = "") -> dict[str, Any]:
        done = await run(*words, "-o", "json", given=given)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    with vault.running() as address:
        place = ("--address", address, "--key", "windlass")
        made = await item("create", "vault", "ours", *place, given=f"{vault.TOKEN}\n")
        key = str(made["id"])
        assert (made["type"], made["mount"]) == ("vault", "transit")
        assert f"{key} wraps and unwraps" in (await run("check", key)).stderr
        async with front.http() as http:
            project = (await http.post("/v1/projects", json={"title": "Own"})).json()["id"]
        assert (await item("use", project, key))["external_key_id"] == key
        assert (await item("get", key))["api_project_ids"] == [project]
        async with front.http() as http:
            events = (await http.get("/v1/audit_events")).json()["data"]
        told = {one["resource"] for one in events if one["action"].endswith("/SetProjectKey")}
        assert told == {key, project}
        assert key in (await run("list")).stdout
        refused = await run("delete", key, "--yes")
        assert (refused.returncode, "wraps data keys" in refused.stderr) == (1, True)
        assert (await item("use", project, "--rotate"))["external_key_id"] == key
        assert (await run("use", project, key, "--rotate")).returncode == 2
        assert (await item("use", project))["external_key_id"] is None

        async def deleted() -> bool:
            return (await run("delete", key, "--yes")).returncode == 0

        await until(deleted)
    arn = ("--kms-arn", "arn:aws:kms:eu-central-1:123456789012:key/1")
    aws = await item("create", "aws", "theirs", *arn, "--role-arn", moto_server.ROLE)
    assert aws["external_id"] == organization_id
    token = ("--token-name", "of-others", "--key-label", "a")
    refused = await run("create", "pkcs11", "token", *token)
    assert (refused.returncode, "no token of this name" in refused.stderr) == (1, True)
