"""The erasure of an organization of a million files, and what another one feels of it.

`windlass serve` as it is by default, one process. Each file is a row and an object of a few bytes,
in ten projects. The peer is a loop that unlinks as many objects in folders of the same shape, a
process of its own. The other organization lists its files all the while: during either, and in
quiet before, between and after. An S3 server has fewer objects: a Swift on the same machine.
"""

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import boto3
import psycopg
from tests.bench import machine
from tests.bench.figures import Figure, Options, plain
from tests.bench.load import paced, percentile
from tests.bench.plant import NO_AGENT, PROGRAMS, Plant, served_on
from tests.support.environments.postgres import reachable_folder
from tests.support.environments.swift import ACCESS_KEY, REGION, SECRET_KEY, Swift, start_swift
from tests.support.factories.tenants import Caller, make_tenants, new_project
from tests.support.processes.front_door import GOOD, jsonl, upload

T = TypeVar("T")

OBJECTS, QUICK_OBJECTS = 1_000_000, 20_000
QUIET_SECONDS, QUICK_QUIET_SECONDS = 20.0, 3.0
STORED, QUICK_STORED = 5000, 500
PROJECTS, SHOWN, BATCH = 10, 20, 1000
BUCKET = "windlass"
RATE = 50.0
# Asking every two seconds would itself delay more than one in a hundred of the other's requests.
POLL_SECONDS, QUICK_POLL_SECONDS = 10.0, 0.2
TITLE = "Acme"
CONTENT = b'{"messages": []}\n'
SETTINGS = {**NO_AGENT, "leaving": {"grace_seconds": 0}}
_ROWS = """
INSERT INTO files_files (id, organization_id, project_id, filename, purpose, size, sha256,
    created_at, status, object_key)
SELECT f.id, %(organization)s, p.id, 'data.jsonl', 'user_data', %(size)s, '\\x00', 1, 'processed',
    'files/' || p.id || '/' || f.id
FROM unnest(%(projects)s::text[]) AS p (id), LATERAL (
    SELECT 'file-' || right(p.id, 16) || lpad(g::text, 8, '0') AS id
    FROM generate_series(0, %(each)s - 1) AS g
) AS f
"""


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    return [*await _in_a_folder(options), await _in_a_bucket(options)]


async def _in_a_folder(options: Options) -> list[Figure]:
    objects = QUICK_OBJECTS if options.quick else OBJECTS
    pause = QUICK_QUIET_SECONDS if options.quick else QUIET_SECONDS
    poll = QUICK_POLL_SECONDS if options.quick else POLL_SECONDS
    async with served_on(SETTINGS) as (plant, url):
        tenants = make_tenants(plant.windlass)
        projects = [new_project(tenants.owner, f"Part {number}") for number in range(PROJECTS)]
        live, each = _Live(tenants.strange_member), objects // PROJECTS
        await live.during("warm", asyncio.sleep(2))
        await asyncio.to_thread(_fill, plant.folder / "bare", projects, each)
        await live.rest(pause)
        floor = await live.during("bare", _bare(plant.folder / "bare"))
        await live.rest(pause)
        content = plant.windlass.data / "objects" / "content" / "files"
        await asyncio.to_thread(_fill, content, projects, each)
        _insert(url, tenants.owner.organization_id, projects, each)
        await live.rest(pause)
        erased = _erased(plant, tenants.owner, objects, poll=poll)
        ours, growth = await live.during("erasing", erased)
        await live.rest(pause)
        if left := [project for project in projects if (content / project).exists()]:
            raise RuntimeError(f"objects are left of {left}")
    return [
        Figure(name="erasure", value=ours, unit="s").beside("unlink loop", floor).at_most_times(2),
        live.beside_quiet("erasure_live_p99", "erasing").at_most_times(1.1),
        live.beside_quiet("erasure_live_p99_bare", "bare"),
        plain("erasure_memory", growth, "MiB"),
    ]


async def _in_a_bucket(options: Options) -> Figure:
    """The same beside listing and deleting by the thousand, without anybody else."""
    objects = QUICK_STORED if options.quick else STORED
    with reachable_folder() as folder, start_swift(folder) as server:
        client = _client(server)
        client.create_bucket(Bucket=BUCKET)
        await asyncio.to_thread(_store, client, ["bare"], objects)
        floor = await asyncio.to_thread(_bare_bucket, client)
        async with served_on({**SETTINGS, "objects": _place(server)}) as (plant, url):
            owner = make_tenants(plant.windlass).owner
            projects = [new_project(owner, f"Part {number}") for number in range(PROJECTS)]
            await asyncio.to_thread(_store, client, projects, objects // PROJECTS)
            _insert(url, owner.organization_id, projects, objects // PROJECTS)
            ours, _ = await _erased(plant, owner, objects, poll=QUICK_POLL_SECONDS)
    figure = Figure(name="erasure_s3", value=ours, unit="s")
    return figure.beside("list and delete loop", floor).at_most_times(2)


class _Live:
    """Another organization, which lists its files at a steady rate."""

    def __init__(self, caller: Caller):
        self._caller = caller
        self._took: dict[str, list[float]] = {}
        for number in range(SHOWN):
            upload(caller.openai(), jsonl([GOOD] * 20), name=f"{number}.jsonl")

    async def during(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Lists until some work is done, whose result it returns."""
        headers = {"authorization": f"Bearer {self._caller.key}"}
        took = self._took.setdefault(name, [])
        async with aiohttp.ClientSession(headers=headers) as session:

            async def call() -> None:
                began = time.perf_counter()
                url = f"{self._caller.windlass.url}/v1/files"
                async with session.get(url, raise_for_status=True) as answer:
                    if len((await answer.json())["data"]) != SHOWN:
                        raise RuntimeError("the files are not those of the other organization")
                took.append(time.perf_counter() - began)

            task = asyncio.create_task(work)
            try:
                while not task.done():
                    await paced(call, count=int(RATE), rate=RATE)
                return await task
            finally:
                task.cancel()

    async def rest(self, seconds: float) -> None:
        """Lists in quiet, which begins once the disk has what was written before."""
        await asyncio.to_thread(os.sync)
        await self.during("quiet", asyncio.sleep(seconds))

    def beside_quiet(self, name: str, during: str) -> Figure:
        """The 99th percentile during some work, beside that without."""
        ours, quiet = (1000 * percentile(self._took[one], 0.99) for one in (during, "quiet"))
        return Figure(name=name, value=ours, unit="ms").beside("quiet", quiet)


def _fill(folder: Path, projects: list[str], each: int) -> None:
    """Makes the objects, and waits until the disk has them."""
    for project in projects:
        (folder / project).mkdir(parents=True)
        for number in range(each):
            (folder / project / f"file-{project[-16:]}{number:08}").write_bytes(CONTENT)
    os.sync()


def _insert(url: str, organization: str, projects: list[str], each: int) -> None:
    values = {
        "organization": organization,
        "projects": projects,
        "each": each,
        "size": len(CONTENT),
    }
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(_ROWS, values)
        connection.execute("VACUUM ANALYZE files_files")


def _place(server: Swift) -> dict[str, str]:
    return {
        "kind": "s3",
        "bucket": BUCKET,
        "endpoint_url": server.url,
        "region": REGION,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
    }


def _client(server: Swift) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )


def _store(client: Any, projects: list[str], each: int) -> None:
    keys = [f"files/{project}/{number:08}" for project in projects for number in range(each)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: client.put_object(Bucket=BUCKET, Key=key, Body=CONTENT), keys))


def _bare_bucket(client: Any) -> float:
    """Seconds of the loop."""
    began = time.perf_counter()
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    keys = ({"Key": found["Key"]} for page in pages for found in page.get("Contents", ()))
    while some := list(islice(keys, BATCH)):
        client.delete_objects(Bucket=BUCKET, Delete={"Objects": some, "Quiet": True})
    return time.perf_counter() - began


async def _bare(folder: Path) -> float:
    """Seconds of the loop."""
    program = str(PROGRAMS / "bare_removal.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, program, str(folder), stdout=PIPE
    )
    output, _ = await process.communicate()
    return float(output)


async def _erased(plant: Plant, owner: Caller, objects: int, *, poll: float) -> tuple[float, float]:
    """Seconds from the deletion to the signed report, and MiB that the server gained."""
    rested = machine.memory_bytes(plant.pid(), "VmRSS")
    machine.forget_peak(plant.pid())
    with owner.http() as http:
        path = f"/v1/organizations/{owner.organization_id}"
        began = time.perf_counter()
        answer = await asyncio.to_thread(http.delete, path, params={"title": TITLE})
    answer.raise_for_status()
    with plant.windlass.http() as http:
        found: dict[str, Any] = {}
        while found.get("state") != "erased":
            await asyncio.sleep(poll)
            answer = await asyncio.to_thread(http.get, f"/v1/erasures/{answer.json()['id']}")
            found = answer.raise_for_status().json()
    took = time.perf_counter() - began
    (files,) = (one for one in found["steps"] if one["service"] == "files")
    if (int(files["objects"]), int(files["rows"]["files_files"])) != (objects, objects):
        raise RuntimeError(f"the report is not right: {files}")
    return took, (machine.memory_bytes(plant.pid(), "VmHWM") - rested) / 2**20
