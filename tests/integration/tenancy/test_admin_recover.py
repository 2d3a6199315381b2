"""`windlass admin recover`: a new owner, by whoever owns the data folder or the database."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.environments.client_certificates import made
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.processes.recovery import recover
from tests.support.services.front import running_front
from tests.support.waiting import until

from windlass.embedded_postgres import EmbeddedPostgres


async def test_whoever_was_locked_out_comes_back(database_url: str, tmp_path: Path) -> None:
    plain = database_url.replace("+psycopg", "")
    async with running_front(database_url, tmp_path / "data") as front:
        async with front.http() as http:
            me = (await http.get("/v1/me")).json()["principal"]
            assert (await http.delete(f"/v1/api_keys/{me['key_id']}")).status_code == 200
        # As if a directory had put her out.
        async with await psycopg.AsyncConnection.connect(plain, autocommit=True) as connection:
            await connection.execute(
                "INSERT INTO users_people (organization_id, user_id, deactivated_at, created_at,"
                " updated_at) VALUES (%s, 'ann', 1, 1, 1)",
                (me["organization_id"],),
            )
        path = tmp_path / "new.key"
        done = await recover("--output", str(path), "--user", "ann", url=plain)
        assert done.returncode == 0, done.stderr
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        secret = path.read_text().strip()
        assert secret not in done.stdout + done.stderr
        async with front.http(secret) as http:
            me = (await http.get("/v1/me")).json()["principal"]
            assert (me["user_id"], me["roles"]) == ("ann", ["platform_admin"])
            listed = (await http.get("/v1/audit_events")).json()["data"]
        (told,) = [one for one in listed if one["action"] == "windlass.admin/recover"]
        assert (told["key_id"], told["resource"]) == (me["key_id"], "ann")
        assert told["user_id"].startswith("local:")


async def test_demands_of_certificates_are_taken_away(database_url: str, tmp_path: Path) -> None:
    url, authority = "/v1/organization/certificates", made("authority", ca=True)
    http_section = {"trusted_proxies": ["127.0.0.1/32"]}
    async with (
        running_front(database_url, tmp_path / "data", http=http_section) as front,
        front.http() as http,
    ):
        one = (await http.post(url, json={"certificate": authority.pem})).json()["id"]
        body = {"certificate_ids": [one], "force": True}
        assert (await http.post(f"{url}/activate", json=body)).status_code == 200
        await until(lambda: http.get("/v1/me"), holds=lambda got: got.status_code == 403)
        path = tmp_path / "new.key"
        plain = database_url.replace("+psycopg", "")
        done = await recover("--output", str(path), url=plain)
        assert done.returncode == 0, done.stderr
        assert (await http.get("/v1/me")).status_code == 403
        done = await recover("--output", str(path), "--without-certificates", url=plain)
        assert done.returncode == 0, done.stderr
        await until(lambda: http.get("/v1/me"), 2.0, holds=lambda got: got.status_code == 200)
        assert [it["active"] for it in (await http.get(url)).json()["data"]] == [False]


async def test_a_list_of_networks_is_taken_away(database_url: str, tmp_path: Path) -> None:
    plain = database_url.replace("+psycopg", "")
    async with running_front(database_url, tmp_path / "data") as front, front.http() as http:
        me = (await http.get("/v1/me")).json()["principal"]
        url = f"/v1/organizations/{me['organization_id']}/networks"
        body = {"networks": ["192.0.2.0/24"], "force": True}
        assert (await http.put(url, json=body)).status_code == 200
        await until(lambda: http.get("/v1/me"), holds=lambda got: got.status_code == 403)
        path = tmp_path / "new.key"
        done = await recover("--output", str(path), "--without-networks", url=plain)
        assert done.returncode == 0, done.stderr
        await until(lambda: http.get("/v1/me"), 2.0, holds=lambda got: got.status_code == 200)
        assert (await http.get(url)).json()["networks"] == []
        listed = (await http.get("/v1/audit_events")).json()["data"]
        (told,) = [one for one in listed if one["action"] == "windlass.admin/recover"]
        assert "192.0.2.0/24" in told["before"]


@pytest.fixture
def data() -> Iterator[Path]:
    with reachable_folder() as folder:
        yield folder
        remove_database(folder)


async def test_it_uses_the_database_of_a_data_folder_running_or_not(data: Path) -> None:
    assert (await recover("--data", str(data))).returncode == 0
    first = (data / "owner.key").read_text()
    server = EmbeddedPostgres(data / "postgres")
    url = await server.start()
    try:
        done = await recover("--data", str(data))
        assert done.returncode == 0, done.stderr
        assert (data / "owner.key").read_text() != first
        async with await psycopg.AsyncConnection.connect(url.replace("+psycopg", "")) as connection:
            found: Any = await connection.execute(
                "SELECT count(*) FROM users_api_keys WHERE role = 'platform_admin'"
            )
            assert await found.fetchone() == (2,)
    finally:
        await server.stop()


async def test_a_missing_folder_is_no_installation(tmp_path: Path) -> None:
    done = await recover("--data", str(tmp_path / "none"))
    assert done.returncode == 2
    assert "no data folder" in done.stderr
