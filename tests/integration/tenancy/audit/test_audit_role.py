"""A database role that owns no table, as the page makes it: it cannot rewrite the audit log."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from tests.support.environments import postgres
from tests.support.processes import pages
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import wait_until

from windlass.core.db import Database
from windlass.migrations import migrate
from windlass.rbac.chains import AuditChains

PAGE = "how-to/export-and-verify-the-audit-log.md"
ROLE = "windlass_service"
TABLE = "rbac_audit_events"
EVENT = {
    "id": "audit_1", "at_ms": 1, "organization_id": "org", "action": "s/Do", "outcome": "OK",
    "before": '{"title":"a"}', "after": '{"title":"b"}',
}  # fmt: skip
REFUSED = (
    f"UPDATE {TABLE} SET resource = 'x'",
    f"UPDATE {TABLE} SET before = 'x', after = 'x', details_salt = 'x'",
    f"DELETE FROM {TABLE}",
    f"UPDATE rbac_audit_chains SET dropped_sequence = sequence; DELETE FROM {TABLE}",
    f"TRUNCATE {TABLE}",
    f"DROP TABLE {TABLE}",
    f"ALTER TABLE {TABLE} DISABLE TRIGGER USER",
    f"DROP TRIGGER append_only ON {TABLE}",
    "CREATE OR REPLACE FUNCTION rbac_audit_erase() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN RETURN NEW; END'",
    "SET session_replication_role = replica",
    "UPDATE alembic_version SET version_num = 'x'",
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of the page's role, on a server that lets every role in."""
    (statements,) = pages.blocks(PAGE, "sql")
    with postgres.older_postgres() as owners:
        migrate(owners)
        with psycopg.connect(owners.replace("+psycopg", "")) as connection:
            connection.execute(statements.encode())
        yield make_url(owners).set(username=ROLE).render_as_string(hide_password=False)


async def test_the_role_appends_and_erases_details_and_changes_nothing_else(url: str) -> None:
    database = Database(url)
    await AuditChains(database).append([EVENT])
    async with database.begin() as connection:
        erase = f"UPDATE {TABLE} SET before = '', after = '', details_salt = ''"
        assert (await connection.execute(sa.text(erase))).rowcount == 1
    await database.close()
    plain = url.replace("+psycopg", "")
    for statement in REFUSED:
        with (
            psycopg.connect(plain) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(statement.encode())


def test_a_whole_server_serves_with_it(url: str, tmp_path: Path) -> None:
    """Migrations aside, no loop and no request needs more, an erasure's neither."""
    settings = {
        "agent": {"enabled": False},
        "database": {"url": url.replace("+psycopg", ""), "migrate": False},
        "leaving": {"grace_seconds": 0},
    }
    windlass = make_single(tmp_path / "data", settings)
    with running(windlass), windlass.http() as http:
        room = http.post("/v1/projects", json={"title": "a room"}).raise_for_status().json()["id"]
        key = http.post(
            "/v1/api_keys", json={"name": "ci", "role": "project_owner", "project_id": room}
        )
        with windlass.http(key.raise_for_status().json()["value"]) as member:
            lines = (
                b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n'
            )
            file = member.post(
                "/v1/files", files={"file": ("a.jsonl", lines * 10)}, data={"purpose": "fine-tune"}
            )
            path = f"/v1/files/{file.raise_for_status().json()['id']}/content"
            assert member.get(path).content == lines * 10
        gone = http.delete(f"/v1/projects/{room}", params={"title": "a room"})
        assert gone.status_code == 200, gone.text

        def erased() -> bool:
            states = {one["state"] for one in http.get("/v1/erasures").json()["data"]}
            return states == {"erased"}

        wait_until(erased)
        # Each look was audited too, and may fill a page of the newest.
        oldest = http.get("/v1/audit_events", params={"limit": 100, "order": "asc"}).json()["data"]
        assert any("CreateProject" in one["action"] for one in oldest)
    for said in ("permission denied", "InsufficientPrivilege", "must be owner"):
        assert said not in windlass.logs()
