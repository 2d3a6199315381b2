"""What an organization pays for 100,000 keys, and 10,000 people in 1,000 groups of ten.

Medians of the same calls with one page of them and with all: a key that the gateway does not
know yet, a page of members and of keys, a key that is made, and one that is revoked.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import httpx
import psycopg
from tests.bench.figures import Figure, Options, plain
from tests.bench.load import percentile
from tests.bench.plant import NO_AGENT, Plant, served_on

KEYS, PEOPLE, CROWD = 100_000, 10_000, 10
# What fills a page, so that pages before and after are as long.
PAGE = 100
MORE = 1.1
_FILL = """
CREATE TEMP TABLE people AS
SELECT 'user-bench-' || g AS id, g FROM generate_series(%(first)s, %(people)s) AS g;
INSERT INTO users_members (organization_id, project_id, user_id, role, created_at)
SELECT m.organization_id, '', p.id, 'organization_reader', m.created_at
FROM people AS p, users_members AS m WHERE m.user_id = %(owner)s AND m.project_id = '';
INSERT INTO users_groups (id, organization_id, name, created_at)
SELECT 'group-bench-' || p.g, %(organization)s, 'bench ' || p.g, 1 FROM people AS p
WHERE p.g %% %(crowd)s = 0;
INSERT INTO users_group_members (group_id, user_id, added_at)
SELECT 'group-bench-' || g - g %% %(crowd)s, id, 1 FROM people;
INSERT INTO users_api_keys (id, digest, name, organization_id, project_id, user_id, role, redacted,
    created_at, expires_at, made_by, rests_on)
SELECT 'key-bench-' || g, sha256(('bench' || g)::bytea), 'bench', k.organization_id, k.project_id,
    'user-bench-' || 1 + g %% %(people)s, k.role, k.redacted, k.created_at, 0, k.made_by, k.rests_on
FROM users_api_keys AS k, generate_series(%(first)s, %(keys)s) AS g WHERE k.id = %(key)s;
DROP TABLE people;
"""
_TABLES = ("users_api_keys", "users_members", "users_groups", "users_group_members")
Took = dict[str, list[float]]


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    times = 60 if options.quick else 400
    async with served_on(NO_AGENT) as (plant, url):
        with plant.windlass.http() as http:
            plain_url = url.replace("+psycopg", "")
            _fill(plain_url, http, 1, PAGE, PAGE)
            _calls(plant, http, 10)
            few = _calls(plant, http, times)
            _fill(plain_url, http, PAGE + 1, PEOPLE, KEYS)
            _calls(plant, http, 10)
            many = _calls(plant, http, times)
    return [figure for name in few for figure in _figures(name, few[name], many[name])]


def _figures(name: str, few: list[float], many: list[float]) -> list[Figure]:
    before, after = 1000 * statistics.median(few), 1000 * statistics.median(many)
    return [
        plain(f"many_keys_{name}", after, "ms").beside("empty", before).at_most_times(MORE),
        plain(f"many_keys_{name}_p99", 1000 * percentile(many, 0.99), "ms").beside(
            "empty", 1000 * percentile(few, 0.99)
        ),
    ]


def _calls(plant: Plant, http: httpx.Client, times: int) -> Took:
    """Seconds of each call, by its name."""
    took: Took = defaultdict(list)

    def timed(name: str, call: Callable[[], httpx.Response]) -> Any:
        began = time.perf_counter()
        answer = call()
        took[name].append(time.perf_counter() - began)
        return answer.raise_for_status().json()

    with httpx.Client(base_url=plant.windlass.url, timeout=60) as stranger:
        for _ in range(times):
            made = timed("made", lambda: http.post("/v1/api_keys", json={"name": "bench"}))
            theirs = {"authorization": f"Bearer {made['value']}"}
            for name in ("unknown", "known"):
                timed(name, lambda: stranger.get("/v1/models", headers=theirs))  # noqa: B023
            path = f"/v1/api_keys/{made['id']}"
            timed("revoked", lambda: http.delete(path))  # noqa: B023
            timed("keys", lambda: http.get("/v1/api_keys", params={"limit": PAGE}))
            timed("members", lambda: http.get("/v1/organization/users", params={"limit": PAGE}))
    return took


def _fill(url: str, http: httpx.Client, first: int, people: int, keys: int) -> None:
    """Makes the people and the keys from the first to the last of these numbers."""
    made = http.post("/v1/api_keys", json={"name": "bench"}).raise_for_status().json()
    with psycopg.connect(url, autocommit=True) as connection:
        query = "SELECT organization_id, user_id FROM users_api_keys WHERE id = %s"
        row = connection.execute(query, (made["id"],)).fetchone()
        if row is None:
            raise RuntimeError("the key is not where it was expected")
        values = {
            "first": first, "people": people, "keys": keys, "crowd": CROWD, "key": made["id"],
            "organization": row[0], "owner": row[1],
        }  # fmt: skip
        with connection.transaction(), psycopg.ClientCursor(connection) as cursor:
            cursor.execute(_FILL, values)
        for table in _TABLES:
            connection.execute(f"VACUUM ANALYZE {table}")
