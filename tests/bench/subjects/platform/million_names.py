"""A million names of models: start, memory, pages, and the look-up of one that was not used."""

import random
import statistics
import time
from pathlib import Path

import httpx
import psycopg
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.load import percentile
from tests.bench.plant import NO_AGENT, served_on
from tests.support.processes.windlass import Windlass

from windlass.core.db import Database
from windlass.models.store import ModelStore

# Copies of one imported model as adapters on it: versions, and the names that point to them.
_FILL = """
WITH made AS (
    INSERT INTO models_versions (id, organization_id, project_id, name, kind, manifest, digest,
        object_prefix, bytes, base_version_id, base_model, task, state, created_at)
    SELECT 'mv-bench-' || g, v.organization_id, v.project_id, 'ft:bench:acme:' || g, 'adapter',
        v.manifest, v.digest, 'jobs/bench/' || g || '/', v.bytes, v.id, v.name, v.task, 'ready',
        v.created_at
    FROM models_versions v, generate_series(1, %(rows)s) AS g WHERE v.name = %(model)s
    RETURNING id, project_id, name
)
INSERT INTO models_models (project_id, name, version_id, revision)
SELECT project_id, name, id, 1000000 + row_number() OVER () FROM made
"""
_BARE = "SELECT version_id FROM models_models WHERE project_id = %s AND name = %s"


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    rows = 50_000 if options.quick else 1_000_000
    lookups = 300 if options.quick else 3000
    async with served_on(NO_AGENT) as (plant, url):
        model = plant.import_model()
        plain_url = url.replace("+psycopg", "")
        plant.windlass.stop()
        few = _start(plant.windlass)
        plant.windlass.stop()
        project = _fill(plain_url, model, rows)
        many = _start(plant.windlass)
        with plant.windlass.http() as http:
            pages = _pages(http, rows, lookups // 3)
        chosen = random.Random(0)
        names = [f"ft:bench:acme:{chosen.randrange(1, rows)}" for _ in range(lookups)]
        floor = _bare(plain_url, project, names)
        ours = await _resolved(url, project, names)
        copied = _copy(plain_url)
    return [
        at_most("names_start", many[0], "s", 10).beside("one name", few[0]),
        at_most("names_memory", many[1] - few[1], "MiB", 64).beside("one name, whole", few[1]),
        plain("names_copy", copied, "s"),
        at_most("names_lookup_p99", 1000 * percentile(ours, 0.99), "ms", 5).beside(
            "bare SELECT", 1000 * percentile(floor, 0.99)
        ),
        plain("names_lookup_p50", 1000 * statistics.median(ours), "ms").beside(
            "bare SELECT", 1000 * statistics.median(floor)
        ),
        plain("names_page_p50", 1000 * statistics.median(pages), "ms"),
        plain("names_page_p99", 1000 * percentile(pages, 0.99), "ms"),
    ]


def _start(windlass: Windlass) -> tuple[float, float]:
    """Seconds until ready, and MiB resident then."""
    began = time.perf_counter()
    windlass.start()
    windlass.wait_ready(120, every=0.01)
    return time.perf_counter() - began, _resident(windlass.processes["all"].pid)


def _resident(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


def _fill(url: str, model: str, rows: int) -> str:
    """Makes the names; answers their project."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_FILL, {"rows": rows, "model": model})
        connection.execute("UPDATE models_stream SET revision = 3000000")
        connection.execute("VACUUM ANALYZE models_versions")
        connection.execute("VACUUM ANALYZE models_models")
        query = "SELECT project_id FROM models_models WHERE name = 'ft:bench:acme:1'"
        row = connection.execute(query).fetchone()
    if row is None:
        raise RuntimeError("nothing was filled in")
    return str(row[0])


def _pages(http: httpx.Client, rows: int, count: int) -> list[float]:
    chosen, took = random.Random(1), []
    for _ in range(count):
        parameters: dict[str, str | int] = {
            "limit": 100,
            "after": f"ft:bench:acme:{chosen.randrange(1, rows)}",
        }
        began = time.perf_counter()
        answer = http.get("/v1/models", params=parameters).raise_for_status()
        took.append(time.perf_counter() - began)
        if answer.json()["object"] != "list":
            raise RuntimeError("no page")
    return took


def _bare(url: str, project: str, names: list[str]) -> list[float]:
    took = []
    with psycopg.connect(url, autocommit=True) as connection:
        for name in names:
            began = time.perf_counter()
            row = connection.execute(_BARE, (project, name)).fetchone()
            took.append(time.perf_counter() - began)
            if row is None:
                raise RuntimeError(f"no {name}")
    return took


async def _resolved(url: str, project: str, names: list[str]) -> list[float]:
    database, took = Database(url), []
    store = ModelStore(database)
    try:
        for name in names:
            began = time.perf_counter()
            await store.resolve(project, name)
            took.append(time.perf_counter() - began)
    finally:
        await database.close()
    return took


def _copy(url: str) -> float:
    """Seconds to read every name once: what a process that held them all would wait for."""
    began = time.perf_counter()
    statement = "COPY models_models (project_id, name, version_id) TO STDOUT"
    with psycopg.connect(url) as connection, connection.cursor().copy(statement) as copy:
        held = {bytes(row) for row in copy}
    return time.perf_counter() - began if held else 0.0
