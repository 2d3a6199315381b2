"""The how-to on keys in tokens and KMS, run as it is printed: SoftHSM is real, moto is KMS."""

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from openai import OpenAI
from tests.support.keepers import moto_server, softhsm
from tests.support.processes import pages
from tests.support.processes.command import windlass
from tests.support.services.front import Front, running_front

from windlass.core.config import Settings

PAGE = "how-to/keep-keys-in-an-hsm-or-kms.md"


def test_every_configuration_of_the_page_is_one() -> None:
    found = pages.blocks(PAGE, "yaml")
    for block in found:
        Settings.model_validate(yaml.safe_load(block))
    assert len(found) == 4


async def test_the_page_on_keys_is_true(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hsm = softhsm.made(tmp_path)
    hsm.token("windlass")
    for name, value in {**hsm.environment, **moto_server.CREDENTIALS}.items():
        monkeypatch.setenv(name, value)
    instead = {"/usr/lib/softhsm/libsofthsm2.so": str(hsm.module), "4321": softhsm.PIN}
    make, use = (_here(block, instead) for block in pages.blocks(PAGE, "python"))
    # By a process of its own: this one keeps what it has loaded of other tokens.
    subprocess.run((sys.executable, "-c", make), check=True)
    (tmp_path / "pin").write_text(softhsm.PIN)
    (tmp_path / "master.key").write_text(base64.b64encode(os.urandom(32)).decode())
    places = {**instead, "/etc/windlass": str(tmp_path)}
    both = yaml.safe_load(_here(pages.blocks(PAGE, "yaml")[0], places))
    new = {"pkcs11": both["master_key"]["pkcs11"]}
    common = {
        "data_dir": str(tmp_path / "other"),
        "database": {"url": database_url.replace("+psycopg", "")},
    }
    (tmp_path / "both.yaml").write_text(json.dumps({**both, **common}))
    (tmp_path / "new.yaml").write_text(json.dumps({"master_key": new, **common}))
    old = {"file": both["master_key"]["file"]}

    with moto_server.running() as moto:
        endpoints = {"kms_endpoint": moto.url, "sts_endpoint": moto.url}
        async with running_front(
            database_url, tmp_path / "data", master_key=old, external_keys=endpoints
        ) as front:
            for line in "\n".join(pages.blocks(PAGE, "sh")).split("\n"):
                if words := line.split()[1:]:
                    done = await asyncio.to_thread(windlass, tmp_path, *words)
                    assert done.returncode == 0, done.stderr
            scope: dict[str, Any] = {"kms_arn": moto.key()}
            async with front.http() as http:
                me = (await http.get("/v1/me")).json()["principal"]
            scope["organization_id"] = me["organization_id"]
            scope["client"] = OpenAI(
                base_url=f"{front.url}/v1", api_key="none", admin_api_key=front.owner_key
            )
            await asyncio.to_thread(_execute, use, scope)
            assert scope["project"].external_key_id == scope["key"].id
            await _has_sealed_objects(front, scope["project"].id, tmp_path)
    # The old key opens nothing any more, and the new one does.
    shown = await asyncio.to_thread(
        windlass, tmp_path, "admin", "master-key", "status", "--config", "new.yaml"
    )
    assert (shown.returncode, "root-2026" in shown.stdout) == (0, True)


async def _has_sealed_objects(front: Front, project: str, folder: Path) -> None:
    content = b"as the page says, this is covered"
    async with front.http(**{"OpenAI-Project": project}) as http:
        form = {"purpose": "user_data"}
        (await http.post("/v1/files", data=form, files={"file": ("a", content)})).raise_for_status()
    (stored,) = (folder / "data/objects/content/files" / project).iterdir()
    assert content not in stored.read_bytes()


def _here(block: str, instead: Mapping[str, str]) -> str:
    for printed, here in instead.items():
        block = block.replace(printed, here)
    return block


def _execute(code: str, scope: dict[str, Any]) -> None:
    exec(code, scope)
