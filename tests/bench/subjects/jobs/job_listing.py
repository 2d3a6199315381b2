"""A page of 20 of a million jobs, at any depth: at the store, and through HTTP."""

import hashlib
import random
import time
from typing import Any

import httpx
import sqlalchemy as sa
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.load import percentile
from tests.bench.plant import NO_AGENT, served_on

from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.jobs.domain.job import JobState
from windlass.jobs.storage.store import JobStore
from windlass.jobs.storage.tables import jobs

PAGE = 20
JSON = {"content-type": "application/json"}
# Every tenth row is another project's, so that the filter has something to leave out.
_SHARE = 10
_VALUES = {"state": f"{JobState.SUCCEEDED:d}", "cluster_id": "''"}
_OWN = ("sequence", "id", "request_id", "project_id")


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    rows = 50_000 if options.quick else 1_000_000
    pages = 300 if options.quick else 2000
    async with served_on(NO_AGENT) as (plant, url):
        body = plant.job_body()
        with plant.windlass.http() as http:
            job = (
                http.post("/v1/fine_tuning/jobs", content=body, headers=JSON)
                .raise_for_status()
                .json()
            )
            database = Database(url)
            try:
                project = await _fill(database, job["id"], rows)
                store = JobStore(database, Wake(url))
                at_store = await _at_store(store, project, rows, pages)
            finally:
                await database.close()
            through = _through_http(http, rows, pages)
    return [
        at_most("job_listing_p99", 1000 * percentile(at_store, 0.99), "ms", 5),
        plain("job_listing_p50", 1000 * percentile(at_store, 0.5), "ms"),
        plain("job_listing_http_p99", 1000 * percentile(through, 0.99), "ms"),
        plain("job_listing_http_p50", 1000 * percentile(through, 0.5), "ms"),
    ]


async def _fill(database: Database, job_id: str, rows: int) -> str:
    """Copies a job `rows` times; answers its project."""
    copied = ", ".join(column.name for column in jobs.columns if column.name not in _OWN)
    # Ended, as most of a million jobs are: nothing looks for work among them.
    ended = ", ".join(_VALUES.get(name, name) for name in copied.split(", "))
    statement = sa.text(
        f"INSERT INTO jobs_jobs (id, request_id, project_id, {copied}) "
        "SELECT 'ftjob-' || md5(g::text), '', "
        f"CASE WHEN g % {_SHARE} = 0 THEN 'proj_other' ELSE project_id END, {ended} "
        "FROM jobs_jobs, generate_series(1, :rows) AS g WHERE id = :id ORDER BY g"
    )
    async with database.begin() as connection:
        await connection.execute(statement, {"rows": rows, "id": job_id})
    async with database.autocommit() as connection:
        await connection.execute(sa.text("VACUUM ANALYZE jobs_jobs"))
        query = sa.select(jobs.c.project_id).where(jobs.c.id == job_id)
        return str((await connection.execute(query)).scalar_one())


class _Depths:
    """Cursors anywhere in the list, the first page one time in five."""

    def __init__(self, rows: int):
        self._rows = rows
        self._random = random.Random(0)

    def next(self) -> int:
        """The number of a row of the project; 0 for the first page."""
        if self._random.random() < 0.2:
            return 0
        number = self._random.randrange(PAGE * 2, self._rows)
        return number - 1 if number % _SHARE == 0 else number


async def _at_store(store: JobStore, project: str, rows: int, pages: int) -> list[float]:
    depths, took = _Depths(rows), []
    for _ in range(pages):
        after = _id(depths.next())
        began = time.perf_counter()
        page = await store.list(project, after=after, limit=PAGE + 1, metadata={})
        took.append(time.perf_counter() - began)
        _expect(len(page) - 1)
    return took


def _through_http(http: httpx.Client, rows: int, pages: int) -> list[float]:
    depths, took = _Depths(rows), []
    for _ in range(pages):
        after = _id(depths.next())
        parameters: dict[str, Any] = {"limit": PAGE} | ({"after": after} if after else {})
        began = time.perf_counter()
        answer = http.get("/v1/fine_tuning/jobs", params=parameters)
        took.append(time.perf_counter() - began)
        _expect(len(answer.raise_for_status().json()["data"]))
    return took


def _expect(count: int) -> None:
    if count != PAGE:
        raise RuntimeError(f"a page has {count} jobs")


def _id(number: int) -> str:
    digest = hashlib.md5(str(number).encode(), usedforsecurity=False)
    return f"ftjob-{digest.hexdigest()}" if number else ""
