"""A change that was answered is in the audit log, whatever kills the server then."""

from pathlib import Path

import psycopg
import pytest
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import wait_until

CHANGES = 12


@pytest.mark.faults
def test_rows_outlive_kill_9(database_url: str, tmp_path: Path) -> None:
    plain = database_url.replace("+psycopg", "")
    settings = {"database": {"url": plain}, "agent": {"enabled": False}}
    windlass = make_single(tmp_path / "data", settings)
    with running(windlass):
        asked = []
        with windlass.http() as http, psycopg.connect(plain) as connection:
            # rbac stores nothing as long as this lasts.
            connection.execute("LOCK TABLE rbac_audit_events IN EXCLUSIVE MODE")
            for number in range(CHANGES):
                answer = http.post("/v1/projects", json={"title": f"p{number}"})
                assert answer.status_code == 200
                asked.append(answer.headers["x-request-id"])
            refused = http.post("/v1/projects", json={"title": "p0"})
            assert refused.status_code == 409
            asked.append(refused.headers["x-request-id"])
            windlass.kill()
        windlass.start()
        windlass.wait_ready()
        with windlass.http() as http:

            def told() -> list[str]:
                rows = http.get("/v1/audit_events", params={"limit": 100, "order": "asc"}).json()[
                    "data"
                ]
                ours = [one["request_id"] for one in rows if one["action"].endswith("Project")]
                return ours if len(ours) >= len(asked) else []

            rows = wait_until(told)
            assert http.get("/v1/audit_events/verification").json()["fault"] is None
        assert sorted(rows) == sorted(asked)
        wait_until(lambda: not list((windlass.data / "spool" / "audit").glob("*.log")))
