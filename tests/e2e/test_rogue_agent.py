"""A rogue agent with a valid credential, and the protocol in its hands, gets nothing of others.

It claims whatever would serve it. Its cluster is assigned to its maker's project alone.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from aiohttp import web
from tests.support.environments import postgres
from tests.support.factories.tenants import Caller, Tenants, make_tenants
from tests.support.processes.windlass import Windlass, make_single, running
from tests.support.waiting import PATIENCE, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.jobs.v1 import jobs_pb2, jobs_pb2_grpc
from windlass.client import Windlass as Client
from windlass.core.app import runtime_dir
from windlass.core.errors import from_rpc
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.tunnel.targets import Targets
from windlass_agent.tunnel.tunnel import Tunnel

MILLION = 1_000_000
HI = [{"role": "user", "content": "hi"}]
ROWS = json.dumps({"messages": [*HI, {"role": "assistant", "content": "a secret"}]}) + "\n"


@dataclass
class Agent:
    """Says what it is told to, and keeps what it is given."""

    address: str
    cluster_id: str
    credential: str
    session: str
    given: dict[str, pb.Workload] = field(default_factory=dict)
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    # Who came to the door that it says it has.
    knocked: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.channel = grpc.aio.insecure_channel(self.address)
        self.stub: Any = rpc.ClustersAgentServiceStub(self.channel)
        self.jobs: Any = jobs_pb2_grpc.JobsAgentServiceStub(self.channel)
        self.metadata = (("authorization", f"Bearer {self.credential}"),)

    async def join(self, capacity: pb.Capacity, executor: str = "process") -> None:
        joined = asyncio.Event()
        self.tasks.append(asyncio.create_task(self._watch(executor, joined)))
        await asyncio.wait_for(joined.wait(), PATIENCE)
        self.tasks.append(asyncio.create_task(self._beat(capacity)))

    async def _watch(self, executor: str, joined: asyncio.Event) -> None:
        request = pb.WatchRequest(session_id=self.session, agent_version="1", executor=executor)
        async for delta in self.stub.Watch(request, metadata=self.metadata):
            self.given.update({one.id: one for one in delta.workloads})
            joined.set()

    async def _beat(self, capacity: pb.Capacity) -> None:
        request = pb.HeartbeatRequest(session_id=self.session, capacity=capacity)
        while True:
            await self.stub.Heartbeat(request, metadata=self.metadata)
            await asyncio.sleep(2)

    async def report(self, workload: pb.Workload, phase: Any, **fields: Any) -> None:
        status = pb.WorkloadStatus(
            workload_id=workload.id, generation=workload.generation, phase=phase, **fields
        )
        request = pb.ReportStatusRequest(session_id=self.session, statuses=[status])
        await self.stub.ReportStatus(request, metadata=self.metadata)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.channel.close()


@pytest.fixture(scope="module")
def windlass(postgres_url: str) -> Iterator[Windlass]:
    """One process without an agent of its own, so that nobody else could take what is asked."""
    with postgres.reachable_folder() as folder, postgres.fresh_database(postgres_url) as url:
        settings = {
            "database": {"url": url},
            "agent": {"enabled": False},
            "inference": {"hold_seconds": 4},
        }
        with running(make_single(folder / "data", settings)) as made:
            yield made


@pytest.fixture(scope="module")
def tenants(windlass: Windlass) -> Tenants:
    return make_tenants(windlass)


async def enrolled(windlass: Windlass, name: str, project: str, **policy: Any) -> Agent:
    address = f"unix:{runtime_dir(windlass.data) / 'windlass.sock'}"
    with windlass.http() as http:
        made = http.post("/v1/clusters", json={"name": name, **policy}).raise_for_status().json()
        path = f"/v1/clusters/{made['id']}/assignments/{project}"
        http.put(path, json={}).raise_for_status()
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = rpc.ClustersAgentServiceStub(channel)
        answer = await stub.Enroll(pb.EnrollRequest(registration_key=made["registration_key"]))
    return Agent(address, made["id"], answer.credential, f"session-{name}")


@pytest.fixture
async def rogue(windlass: Windlass, tenants: Tenants) -> AsyncIterator[Agent]:
    """It offers a million of everything, and a door at an address that nobody has pinned; the
    project of `strange_member` uses it.
    """
    project = tenants.strange_member.project_id
    agent = await enrolled(windlass, "rogue", project, executor="process")
    capacity = pb.Capacity(
        slots=MILLION, engine_slots=MILLION, gpus=MILLION, cpus=MILLION, memory_bytes=2**62,
        engines=["builtin"], backends=["trl"],
    )  # fmt: skip
    door = await asyncio.start_server(lambda *ends: agent.knocked.append(ends), "127.0.0.1", 0)
    address = f"127.0.0.1:{door.sockets[0].getsockname()[1]}"
    capacity.direct.CopyFrom(pb.DirectEndpoint(address=address, certificate_digest=b"x" * 32))
    await agent.join(capacity)
    yield agent
    door.close()
    await agent.close()
    with windlass.http() as http:
        http.delete(f"/v1/clusters/{agent.cluster_id}").raise_for_status()


def bring_model(caller: Caller, name: str, folder: Path) -> None:
    with Client(caller.windlass.url, caller.key) as client:
        client.models.import_folder(name, folder)


def make_job(caller: Caller, model: str) -> str:
    client = caller.openai()
    file = client.files.create(file=("rows.jsonl", (ROWS * 20).encode()), purpose="fine-tune")
    return str(client.fine_tuning.jobs.create(model=model, training_file=file.id).id)


def chat(caller: Caller, model: str, **fields: Any) -> httpx.Response:
    with caller.http() as http:
        body = {"model": model, "messages": HI, **fields}
        return http.post("/v1/chat/completions", json=body)


async def test_what_it_says_of_itself_attracts_nothing(
    windlass: Windlass, tenants: Tenants, rogue: Agent, base_folder: Path
) -> None:
    victim, operator = tenants.member, windlass.http()
    await asyncio.to_thread(bring_model, victim, "victims", base_folder)
    job = await asyncio.to_thread(make_job, victim, "victims")
    answer = await asyncio.to_thread(chat, victim, "victims")
    assert answer.status_code == 503, answer.text
    found = operator.get(f"/v1/clusters/{rogue.cluster_id}").json()
    assert found["capacity"]["slots"] <= 10_000
    assert found["capacity"]["engine_slots"] <= 64
    assert any("1000000 engine slots" in one for one in found["warnings"])
    assert any("no address of the cluster's" in one for one in found["warnings"])
    assert found["capacity"]["direct"] is None
    with victim.http() as http:

        def explained() -> bool:
            queue = http.get(f"/v1/fine_tuning/jobs/{job}").json()["windlass"]["queue"]
            return "No cluster is assigned to this project" in (queue["reason"] or "")

        await until(explained)
    assert not rogue.given, "neither training data, nor weights, nor prompts"
    # Its own project is another matter: the test would notice if nothing were ever given.
    await asyncio.to_thread(bring_model, tenants.strange_member, "mine", base_folder)
    own = await asyncio.to_thread(make_job, tenants.strange_member, "mine")
    await until(lambda: [one for one in rogue.given.values() if one.job.job_id == own])
    assert {one.project_id for one in rogue.given.values()} == {tenants.strange_member.project_id}


async def test_another_executor_than_the_registered_is_refused(
    windlass: Windlass, tenants: Tenants
) -> None:
    agent = await enrolled(windlass, "pretender", tenants.strange_member.project_id)
    watch = agent.stub.Watch(
        pb.WatchRequest(session_id="s", executor="process"), metadata=agent.metadata
    )
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await watch.read()
    assert from_rpc(refusal.value).reason == "executor_mismatch"
    with windlass.http() as http:
        found = http.get(f"/v1/clusters/{agent.cluster_id}").json()
    assert found["executor"] == "kubernetes"
    assert "has the executor process" in found["warnings"][0]
    await agent.close()


async def test_it_cannot_speak_for_the_workloads_of_another_cluster(
    windlass: Windlass, tenants: Tenants, rogue: Agent, base_folder: Path
) -> None:
    victim = tenants.sibling
    honest = await enrolled(windlass, "honest", victim.project_id, executor="process")
    await honest.join(pb.Capacity(slots=1, backends=["trl"]))
    await asyncio.to_thread(bring_model, victim, "siblings", base_folder)
    job = await asyncio.to_thread(make_job, victim, "siblings")
    taken = await until(lambda: next(iter(honest.given.values()), None))
    await rogue.report(taken, pb.PHASE_FAILED, reason="Forged")
    run = jobs_pb2.Run(job_id=job, attempt=taken.job.attempt)
    for call in (
        rogue.jobs.GetAssignment(jobs_pb2.RunRequest(run=run), metadata=rogue.metadata),
        rogue.jobs.AppendLog(
            jobs_pb2.AppendLogRequest(run=run, data=b"forged"), metadata=rogue.metadata
        ),
        rogue.jobs.Finish(
            jobs_pb2.RunFinishRequest(run=run), metadata=rogue.metadata
        ),
    ):  # fmt: skip
        with pytest.raises(grpc.aio.AioRpcError):
            await call
    mine = await honest.jobs.GetAssignment(jobs_pb2.RunRequest(run=run), metadata=honest.metadata)
    assert mine.training_file.url, "who holds the attempt is told all of it"
    with victim.http() as http:
        assert http.get(f"/v1/fine_tuning/jobs/{job}").json()["status"] not in ("failed",)
    await honest.close()


async def test_its_engine_has_no_paths_no_sockets_and_no_tokens_of_others(
    windlass: Windlass, tenants: Tenants, rogue: Agent, base_folder: Path, tmp_path: Path
) -> None:
    mallory, reached = tenants.strange_member, []

    async def lie(request: web.Request) -> web.Response:
        reached.append(request.path)
        usage = {"prompt_tokens": MILLION, "completion_tokens": MILLION}
        said = {"index": 0, "message": {"role": "assistant", "content": "forged"}}
        return web.json_response({"id": "c", "choices": [said], "usage": usage})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", lie)
    runner = web.AppRunner(app)
    await runner.setup()
    # One that the rogue may only dream of, and its own.
    secret = tmp_path / "docker.sock"
    await web.UnixSite(runner, str(secret)).start()
    own = tmp_path / "own.sock"
    tunnelled: list[str] = []

    def endpoint(workload_id: str) -> str:
        tunnelled.append(workload_id)
        return f"unix://{own}"

    site = web.UnixSite(runner, str(own))
    await site.start()
    control = ControlPlane(clusters=rogue.address, jobs=rogue.address, credential=rogue.credential)
    digging = asyncio.create_task(Tunnel(control, Targets(endpoint=endpoint)).run(rogue.session))
    await asyncio.to_thread(bring_model, mallory, "forger", base_folder)
    asking = asyncio.create_task(asyncio.to_thread(chat, mallory, "forger"))
    engine = await until(
        lambda: next((one for one in rogue.given.values() if one.HasField("engine")), None)
    )
    await rogue.report(
        engine,
        pb.PHASE_RUNNING,
        endpoint=f"unix://{secret}",
        capabilities=pb.EngineCapabilities(
            routes=["/v1/files", "/v1/api_keys", "/v1/models"], context_length=512
        ),
    )
    answer = await asking
    if answer.status_code == 503:
        # It is not held for long.
        again = partial(asyncio.to_thread, chat, mallory, "forger")
        answer = await until(again, holds=lambda answer: answer.status_code != 503)
    assert answer.status_code == 200, (answer.text, reached, tunnelled, windlass.log()[-2000:])
    assert answer.json()["choices"][0]["message"]["content"] == "forged", answer.text
    assert set(tunnelled) == {engine.id}, "the address that it named was not asked"
    assert not rogue.knocked, "nor its door"
    with tenants.member.http() as http:
        assert http.get("/v1/files").json()["object"] == "list"
        assert http.post("/v1/files").status_code == 400
        assert http.get("/v1/models").json()["object"] == "list"
    assert set(reached) == {"/v1/chat/completions"}
    with mallory.http() as http:

        def used() -> Any:
            query = {"start_time": int(time.time()) - 86_400, "limit": 31}
            buckets = http.get("/v1/usage", params=query).json()["data"]
            return next((b["results"][0] for b in buckets if b["results"]), None)

        counted = await until(used)
    assert counted["input_tokens"] < 2000, counted
    assert counted["output_tokens"] < 500, counted
    digging.cancel()
    await asyncio.gather(digging, return_exceptions=True)
    await control.close()
    await runner.cleanup()
