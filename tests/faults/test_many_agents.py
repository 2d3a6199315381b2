"""Many jobs over many agents that die at random, under a server that is killed: all succeed, once.

The server is a process; the agents are real ones in this process. No trainer runs: see `swarm`.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from tests.support.agents.swarm import STEP, TOKENS, Ledger, SwarmAgent
from tests.support.environments import postgres
from tests.support.factories.feather import make_feather
from tests.support.factories.job_documents import document
from tests.support.processes.windlass import Windlass, make_single, running
from tests.support.waiting import until

from windlass.api.jobs.v1 import jobs_pb2, jobs_pb2_grpc
from windlass.client import Windlass as Client
from windlass.core.app import runtime_dir
from windlass.core.db import Database
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.tokens import TokenAuthority
from windlass.jobs.domain.job import JobState

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]
KILL_SECONDS = 1.0
# Of those that are killed, so many stay dead for good.
FATAL = 0.1
# In all, and for each job.
PATIENCE_SECONDS = (300, 0.5)
# From its start to the next kill, of the server. A server that is killed sooner than agents are
# given up has no time to place their jobs anew, so the last kill should come before the last job.
SERVER_SECONDS = 10.0
JOBS_PER_KILL = 200
SETTINGS = {
    "agent": {"enabled": False},
    "jobs": {"max_attempts": 100, "drain_seconds": 1.0},
}
CHAT = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


@dataclass
class Stage:
    """A server with nothing to run on yet."""

    socket: str
    database_url: str
    file_id: str
    # What the front door says of the caller's key.
    caller: dict[str, Any]
    registration_keys: list[str]
    jobs: int
    server: Windlass


# An agent that is not heard for so long lets go; after twice that its jobs are placed anew. All
# agents share one loop, which a hundred keep busy for seconds.
@pytest.fixture(
    params=[(40, 8, 4), pytest.param((5000, 100, 15), marks=pytest.mark.long)],
    ids=lambda scale: f"{scale[0]}-jobs-{scale[1]}-agents",
)
def stage(database_url: str, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A server, a model that is never loaded, a file, and a key for each agent."""
    jobs, agents, suspend_seconds = request.param
    lease = {"agents": {"process_suspend_seconds": suspend_seconds}}
    with postgres.reachable_folder() as folder:
        base = make_feather(folder / "feather")
        made = make_single(folder / "data", SETTINGS | lease | {"database": {"url": database_url}})
        rows = (json.dumps(CHAT) + "\n").encode() * 12
        with running(made), made.http() as http, Client(made.url, made.owner_key) as client:
            client.models.import_folder("feather", base)
            file = made.openai().files.create(file=("train.jsonl", rows), purpose="fine-tune")
            machine = {"executor": "process", "shared": True}
            names = [{"name": f"agent-{number}", **machine} for number in range(agents)]
            yield Stage(
                f"unix:{runtime_dir(made.data) / 'windlass.sock'}",
                database_url,
                file.id,
                http.get("/v1/me").json()["principal"],
                [http.post("/v1/clusters", json=one).json()["registration_key"] for one in names],
                jobs,
                made,
            )


async def test_none_is_lost_and_none_is_doubled(stage: Stage) -> None:
    ledger, began = Ledger(), time.monotonic()
    async with database_of(stage.database_url) as database:
        keys = stage.registration_keys
        agents = await asyncio.gather(*(SwarmAgent.join(stage.socket, key, ledger) for key in keys))
        tasks = [asyncio.create_task(kill(list(agents), ledger))]
        try:
            created = await create(stage, database)
            print(f"created after {time.monotonic() - began:.0f} s")
            restarting = asyncio.create_task(
                restart(stage.server, ledger, max(1, stage.jobs // JOBS_PER_KILL))
            )
            tasks.append(restarting)
            await until_ended(database, stage.jobs)
            print(f"ended after {time.monotonic() - began:.0f} s")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(agent.die() for agent in agents))
        await judge(database, created, ledger)
        assert len(created) == stage.jobs


@asynccontextmanager
async def database_of(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    yield database
    await database.close()


async def kill(agents: list[SwarmAgent], ledger: Ledger) -> None:
    """Kills one after the other; most come back, without what they ran."""
    fewest = len(agents) // 2
    async with asyncio.TaskGroup() as group:
        while True:
            slept = time.monotonic()
            await asyncio.sleep(KILL_SECONDS)
            late = time.monotonic() - slept - KILL_SECONDS
            ledger.late_seconds = max(ledger.late_seconds, late)
            if len(agents) <= fewest:
                # Those that come back have to, first.
                continue
            victim = agents.pop(random.randrange(len(agents)))
            await victim.die()
            ledger.kills += 1
            if random.random() > FATAL:
                group.create_task(revive(victim, agents))


async def restart(server: Windlass, ledger: Ledger, times: int) -> None:
    """Kills the server as soon as there is work, and then now and then."""
    for _ in range(times):
        server.kill()
        ledger.server_kills += 1
        server.start()
        await asyncio.to_thread(server.wait_ready)
        await asyncio.sleep(SERVER_SECONDS)


async def revive(agent: SwarmAgent, agents: list[SwarmAgent]) -> None:
    await asyncio.sleep(random.uniform(0.1, 3.0))
    await agent.live()
    agents.append(agent)


async def create(stage: Stage, database: Database) -> set[str]:
    """Makes the jobs as the front door would, on the caller's behalf."""
    gateway = TokenAuthority(database, kind="gateway", name="test")
    await gateway.rotate()
    caller, limit = stage.caller, asyncio.Semaphore(16)
    principal = Principal(
        caller["organization_id"],
        caller["project_id"],
        roles=tuple(caller["roles"]),
        permissions=frozenset(caller["permissions"]),
    )
    async with grpc.aio.insecure_channel(stage.socket) as channel:
        stub: Any = jobs_pb2_grpc.JobsServiceStub(channel)

        async def one(number: int) -> str:
            request = jobs_pb2.CreateJobRequest(
                document=document(model="feather", training_file=stage.file_id),
                request_id=f"job-{number}",
            )
            async with limit:
                proof = (("windlass-principal", gateway.sign_principal(principal)),)
                return str((await stub.CreateJob(request, metadata=proof)).id)

        return set(await asyncio.gather(*(one(number) for number in range(stage.jobs))))


async def rows(database: Database, query: str) -> list[Any]:
    async with database.autocommit() as connection:
        return list((await connection.execute(sa.text(query))).all())


async def until_ended(database: Database, jobs: int) -> None:
    async def states() -> dict[JobState, int]:
        found = await rows(database, "SELECT state, count(*) FROM jobs_jobs GROUP BY state")
        return {JobState(state): count for state, count in found}

    def all_ended(found: dict[JobState, int]) -> bool:
        return found.get(JobState.SUCCEEDED, 0) + found.get(JobState.FAILED, 0) == jobs

    await until(states, PATIENCE_SECONDS[0] + PATIENCE_SECONDS[1] * jobs, holds=all_ended, every=1)


async def judge(database: Database, created: set[str], ledger: Ledger) -> None:
    """Every job succeeded once, by the word of one attempt, and no two ran at a time."""
    assert ledger.doubled == [], (
        f"{ledger.doubled[:5]}; the loop was late by up to {ledger.late_seconds:.1f} s"
    )
    jobs = await rows(
        database,
        "SELECT id, state, attempt, finished_attempt, failure, trained_tokens FROM jobs_jobs",
    )
    assert {job.id for job in jobs} == created
    for job in jobs:
        assert job.state == JobState.SUCCEEDED, job
        assert job.finished_attempt == job.attempt, job
        # A kill may come between its word and the answer.
        assert ledger.finished[job.id] in ([job.attempt], []), job
        assert job.trained_tokens == TOKENS, job
    once = Counter(created)
    assert (
        await counted(database, "jobs_events", "message LIKE '%has successfully completed%'")
        == once
    )
    last = "EXISTS (SELECT FROM jobs_jobs j WHERE j.id = job_id AND j.attempt = t.attempt)"
    assert await counted(database, "jobs_events", f"seq IS NOT NULL AND {last}") == once
    assert await counted(database, "jobs_checkpoints", f"step = {STEP}") == once
    models = await rows(
        database, "SELECT job_id, is_checkpoint FROM models_versions WHERE job_id <> ''"
    )
    assert Counter((one.job_id, one.is_checkpoint) for one in models) == Counter(
        (job_id, is_checkpoint) for job_id in created for is_checkpoint in (False, True)
    )
    again = sum(1 for job in jobs if job.attempt > 1)
    print(
        f"{ledger.kills} kills, {ledger.server_kills} of the server, {again} jobs again; "
        f"the loop was late by up to {ledger.late_seconds:.1f} s"
    )
    assert ledger.kills > 3, "too few died to tell anything"
    assert ledger.server_kills
    await accounted(database, created)


async def counted(database: Database, table: str, where: str) -> Counter[str]:
    """The number of rows of each job."""
    query = f"SELECT job_id, count(*) FROM {table} t WHERE {where} GROUP BY job_id"
    return Counter(dict(tuple(row) for row in await rows(database, query)))


async def accounted(database: Database, created: set[str]) -> None:
    """The tokens of each job are in the usage once, whichever attempts made them."""
    query = (
        "SELECT split_part(id, '/', 1) AS job, sum(input_tokens) FROM usage_records GROUP BY job"
    )

    async def right() -> bool:
        return dict(tuple(row) for row in await rows(database, query)) == dict.fromkeys(
            created, TOKENS
        )

    await until(right, every=0.2)
