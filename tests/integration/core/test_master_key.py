"""`windlass admin master-key`: the root key moves into a token while a server runs."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
from tests.faults.kill_points.points import named_points
from tests.support.keepers import softhsm
from tests.support.services.front import running_front

from windlass.core.killpoints import VARIABLE

POINTS = ("keyring.wrapped", "keyring.sealed", "keyring.retired")
LOCAL = base64.b64encode(bytes(32)).decode()


def test_every_point_of_the_keyring_is_tried() -> None:
    assert {point for point in named_points() if point.startswith("keyring.")} == set(POINTS)


async def test_the_root_key_moves_into_a_token_whatever_is_killed(
    database_url: str, tmp_path: Path
) -> None:
    hsm = softhsm.made(tmp_path)
    hsm.token("windlass")
    hsm.key("windlass", "root")
    points = tmp_path / "points"
    points.mkdir()
    moved: dict[str, Any] = {
        "database": {"url": database_url.replace("+psycopg", "")},
        "master_key": {
            "key": LOCAL,
            "pkcs11": {"module": str(hsm.module), "key": "root", "pin": softhsm.PIN},
        },
    }
    both, alone = tmp_path / "both.json", tmp_path / "alone.json"
    both.write_text(json.dumps({"data_dir": str(tmp_path / "other"), **moved}))
    del moved["master_key"]["key"]
    alone.write_text(json.dumps({"data_dir": str(tmp_path / "other"), **moved}))
    environment = {"PATH": os.environ["PATH"], VARIABLE: str(points), **hsm.environment}

    def begin(action: str, config: Path) -> "subprocess.CompletedProcess[str]":
        command = (sys.executable, "-m", "windlass", "admin", "master-key", action)
        return subprocess.run(
            (*command, "--config", str(config)),
            check=False,
            capture_output=True,
            text=True,
            env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=120,
        )

    async def run(action: str, config: Path, point: str = "") -> "subprocess.CompletedProcess[str]":
        if point:
            (points / point).touch()
        return await asyncio.to_thread(begin, action, config)

    master_key = {"key": LOCAL}
    async with (
        running_front(database_url, tmp_path / "data", master_key=master_key) as front,
        front.http() as http,
    ):
        body = {"value": "hunter2"}
        assert (await http.put("/v1/secrets/wandb", json=body)).status_code == 200
        assert "this process's master key" in (await run("status", alone)).stderr
        done = await run("status", both)
        assert (done.returncode, "does not seal the root key" in done.stderr) == (1, True)
        assert (await run("retire", both)).returncode == 1
        for point in POINTS[:2]:
            assert (await run("rotate", both, point)).returncode == -signal.SIGKILL
        done = await run("rotate", both)
        assert done.stdout == "The master key pkcs11:windlass/root seals the root key.\n"
        assert (await run("status", alone)).returncode == 0
        assert (await run("retire", alone, POINTS[2])).returncode == -signal.SIGKILL
        assert (await run("retire", alone)).stdout == "Retired: none.\n"
        listed = (await http.get("/v1/secrets")).json()["data"]
        assert [one["name"] for one in listed] == ["wandb"]
    done = await run("status", alone)
    assert (done.returncode, "pkcs11:windlass/root" in done.stdout) == (0, True)
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        query = (
            "SELECT action, resource FROM rbac_audit_events WHERE action LIKE 'windlass.admin/%'"
        )
        told = set(connection.execute(query).fetchall())
    assert ("windlass.admin/master-key-rotate", "pkcs11:windlass/root") in told
    with hsm.away():
        done = await run("status", alone)
        assert (done.returncode, "cannot be used: the PKCS#11 token" in done.stderr) == (1, True)
