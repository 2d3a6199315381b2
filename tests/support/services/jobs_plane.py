"""Jobs with the real services around it, in this process, and an agent that a test scripts."""

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import grpc
from tests.support.factories.feather import FEATHER
from tests.support.factories.job_documents import document
from tests.support.waiting import PATIENCE, until

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.files.v1 import files_pb2, files_pb2_grpc
from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.api.models.v1 import models_pb2, models_pb2_grpc
from windlass.api.runner.v1 import runner_pb2
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.core.app import App, runtime_dir
from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.keyring import open_keyring
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.tokens import TokenAuthority
from windlass.serve import make_app, make_store
from windlass.users.tables import projects

SERVED = ("users", "files", "models", "clusters", "jobs", "usage")
PERMISSIONS = frozenset(
    f"{name}.{verb}" for name in (*SERVED, "usage") for verb in ("read", "write")
)
CHAT = {
    "messages": [
        {"role": "user", "content": "What is your name?"},
        {"role": "assistant", "content": "Windlass."},
    ]
}
PREFERENCE = {
    "input": {"messages": [{"role": "user", "content": "Hello"}]},
    "preferred_output": [{"role": "assistant", "content": "Good day."}],
    "non_preferred_output": [{"role": "assistant", "content": "Yo."}],
}


async def _one(content: bytes) -> AsyncIterator[bytes]:
    yield content


@dataclass
class Tenant:
    """A project's caller."""

    plane: "JobsPlane"
    organization: str
    project: str
    permissions: frozenset[str] = PERMISSIONS
    files: int = 0

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        principal = Principal(
            self.organization, self.project, "user", "key_1", ("project_owner",), self.permissions
        )
        return (("windlass-principal", self.plane.gateway.sign_principal(principal)),)

    async def call(self, method: str, request: Any) -> Any:
        return await getattr(self.plane.jobs, method)(request, metadata=self.metadata, timeout=30)

    async def put_file(
        self, content: bytes | None = None, *, purpose: str = "fine-tune", examples: int = 20
    ) -> files_pb2.File:
        stub = files_pb2_grpc.FilesServiceStub(self.plane.channel)
        if content is None:
            content = (json.dumps(CHAT) + "\n").encode() * examples
        ticket = await stub.CreateUpload(
            files_pb2.CreateUploadRequest(filename="data.jsonl", purpose=purpose),
            metadata=self.metadata,
        )
        stored = await self.plane.app.objects.put(ticket.object_key, _one(content))
        return await stub.CommitFile(
            files_pb2.CommitFileRequest(
                upload_id=ticket.upload_id, bytes=stored.bytes, sha256=stored.sha256
            ),
            metadata=self.metadata,
        )

    async def put_model(
        self, name: str, content: Mapping[str, bytes] = FEATHER
    ) -> models_pb2.Model:
        stub = models_pb2_grpc.ModelsServiceStub(self.plane.channel)
        started = await stub.CreateImport(
            models_pb2.CreateImportRequest(id=name, manifest=manifest_of(content)),
            metadata=self.metadata,
        )
        await self.plane.upload(started.uploads, content)
        return await stub.CompleteImport(
            models_pb2.CompleteImportRequest(import_id=started.import_id), metadata=self.metadata
        )

    async def put_secret(self, name: str, value: bytes = b"s3cr3t-of-a-test") -> None:
        stub = users_pb2_grpc.UsersServiceStub(self.plane.channel)
        permissions = self.permissions | {"secrets.write"}
        keeper = replace(self, permissions=permissions)
        request = users_pb2.PutSecretRequest(name=name, value=value)
        await stub.PutSecret(request, metadata=keeper.metadata)

    async def create(self, **fields: Any) -> pb.Job:
        """Creates a job on the project's model `tiny`; makes files unless they are named."""
        if "training_file" not in fields:
            fields["training_file"] = (await self.put_file()).id
        fields.setdefault("model", "tiny")
        fields.setdefault("method", "supervised")
        request_id = fields.pop("request_id", "")
        body = document(**fields)
        request = pb.CreateJobRequest(document=body, request_id=request_id)
        made: pb.Job = await self.call("CreateJob", request)
        return made

    async def job(self, job_id: str) -> pb.Job:
        found: pb.Job = await self.call("GetJob", pb.GetJobRequest(job_id=job_id))
        return found

    async def wait_for(self, job_id: str, *states: str, seconds: float = PATIENCE) -> pb.Job:
        """Waits until the job is in one of the states, and returns it."""
        wanted = {pb.JobState.Value(f"JOB_STATE_{state}") for state in states}

        async def reached() -> pb.Job | None:
            job = await self.job(job_id)
            return job if job.state in wanted else None

        return await until(reached, seconds)

    async def messages(self, job_id: str) -> list[str]:
        """Returns all of the job's events, oldest first."""
        page = await self.call("ListEvents", pb.ListEventsRequest(job_id=job_id, limit=1000))
        return [event.message for event in reversed(page.events)]


def manifest_of(content: Mapping[str, bytes]) -> models_pb2.Manifest:
    return models_pb2.Manifest(
        files=[
            models_pb2.ManifestEntry(
                path=path, bytes=len(data), sha256=hashlib.sha256(data).digest()
            )
            for path, data in content.items()
        ]
    )


@dataclass
class JobsPlane:
    """A running control plane with all that jobs calls."""

    app: App
    gateway: TokenAuthority
    channel: grpc.aio.Channel

    @property
    def jobs(self) -> rpc.JobsServiceAsyncStub:
        return rpc.JobsServiceStub(self.channel)

    async def tenant(self, project: str = "proj_a", organization: str = "org-Acme1") -> Tenant:
        """Returns a project with the base model `tiny`."""
        tenant = Tenant(self, organization, project)
        await tenant.put_model("tiny")
        return tenant

    async def make_known(self, tenant: Tenant) -> None:
        """Tells users of a tenant's project; most jobs need no more than its signed name."""
        project = tenant.project
        row = {
            "id": project, "organization_id": tenant.organization, "title": project,
            "created_at": 1,
        }  # fmt: skip
        async with self.app.database.begin() as connection:
            await connection.execute(projects.insert().values(row))

    async def upload(self, urls: Any, content: Mapping[str, bytes]) -> None:
        """Uploads to signed URLs as a client does, without the gateway that serves them."""
        for file in urls:
            path = urlsplit(file.url).path
            key = re.sub(r"^.*?/objects/", "", path)
            await self.app.objects.put(key, _one(content[file.path]))

    async def agent(self, name: str = "east", **capacity: Any) -> "ScriptedAgent":
        """Yields an enrolled agent that is live and watches."""
        internal = self.app.clients.stub(clusters_pb2_grpc.ClustersInternalServiceStub)
        enrolled = await internal.EnrollLocal(clusters_pb2.EnrollLocalRequest(name=name))
        given: dict[str, Any] = {"slots": 2, "backends": ["trl"]} | capacity
        agent = ScriptedAgent(
            self, enrolled.cluster_id, enrolled.credential, clusters_pb2.Capacity(**given)
        )
        await agent.connect()
        return agent


@dataclass
class ScriptedAgent:
    """An agent on the real wire that acts as the test says and runs nothing."""

    plane: JobsPlane
    cluster_id: str
    credential: str
    capacity: clusters_pb2.Capacity
    desired: dict[str, clusters_pb2.Workload] = field(default_factory=dict)
    session: str = "s1"
    executor: str = ""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.credential}"),)

    @property
    def _clusters(self) -> clusters_pb2_grpc.ClustersAgentServiceAsyncStub:
        return clusters_pb2_grpc.ClustersAgentServiceStub(self.plane.channel)

    async def connect(self) -> None:
        ready = asyncio.Event()
        self._tasks = [asyncio.create_task(self._watch(ready))]
        await asyncio.wait_for(ready.wait(), PATIENCE)
        await self._heartbeat()
        self._tasks.append(asyncio.create_task(self._beat()))

    async def _watch(self, ready: asyncio.Event) -> None:
        request = clusters_pb2.WatchRequest(session_id=self.session, executor=self.executor)
        async for delta in self._clusters.Watch(request, metadata=self.metadata):
            if delta.snapshot:
                self.desired.clear()
            for workload in delta.workloads:
                self.desired[workload.id] = workload
            await self.told(delta)
            ready.set()

    async def told(self, delta: clusters_pb2.WorkloadsDelta) -> None:
        """Reacts to a message; does nothing by default."""

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(2)
            await self._heartbeat()

    async def _heartbeat(self) -> None:
        await self._clusters.Heartbeat(
            clusters_pb2.HeartbeatRequest(session_id=self.session, capacity=self.capacity),
            metadata=self.metadata,
        )

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def wants(
        self, job_id: str, desired: str = "RUNNING", *, attempt: int = 0
    ) -> clusters_pb2.Workload:
        """Waits until the workload is desired so, and returns it."""
        wanted = clusters_pb2.DesiredState.Value(f"DESIRED_STATE_{desired}")

        async def there() -> clusters_pb2.Workload | None:
            found = self.desired.get(job_id)
            if found is None or found.desired != wanted:
                return None
            return found if not attempt or found.job.attempt == attempt else None

        return await until(there)

    async def says(self, job_id: str, phase: str, **fields: Any) -> None:
        """Reports a status of the present generation."""
        status = clusters_pb2.WorkloadStatus(
            workload_id=job_id,
            generation=self.desired[job_id].generation,
            phase=clusters_pb2.Phase.Value(f"PHASE_{phase}"),
            **fields,
        )
        await self._clusters.ReportStatus(
            clusters_pb2.ReportStatusRequest(session_id=self.session, statuses=[status]),
            metadata=self.metadata,
        )

    def run(self, job_id: str, attempt: int | None = None) -> "ScriptedRun":
        """Returns the runner of an attempt, by default the current one."""
        return ScriptedRun(self, job_id, attempt or self.desired[job_id].job.attempt)


@dataclass
class ScriptedRun:
    """Calls that a runner makes through its agent."""

    agent: ScriptedAgent
    job_id: str
    attempt: int
    seq: int = 0

    async def call(self, method: str, request: Any) -> Any:
        request.run.CopyFrom(pb.Run(job_id=self.job_id, attempt=self.attempt))
        stub = rpc.JobsAgentServiceStub(self.agent.plane.channel)
        return await getattr(stub, method)(request, metadata=self.agent.metadata, timeout=30)

    async def assignment(self) -> runner_pb2.Assignment:
        given: runner_pb2.Assignment = await self.call("GetAssignment", pb.RunRequest())
        return given

    async def report(self, *events: runner_pb2.RunEvent) -> int:
        for event in events:
            if not event.seq:
                self.seq += 1
                event.seq = self.seq
            event.at_ms = event.at_ms or 1
        report = runner_pb2.ReportRequest(events=events)
        answer = await self.call("Report", pb.RunReportRequest(report=report))
        return int(answer.acknowledged)

    async def step(self, step: int, *, total: int = 10, tokens: int = 0, loss: float = 1.5) -> None:
        metrics = runner_pb2.StepMetrics(
            step=step, total_steps=total, epoch=1.0, values={"train_loss": loss},
            trained_tokens=tokens,
        )  # fmt: skip
        await self.report(runner_pb2.RunEvent(level=runner_pb2.LEVEL_INFO, metrics=metrics))

    async def begin_upload(
        self, kind: str, step: int, content: dict[str, bytes]
    ) -> runner_pb2.CreateArtifactResponse:
        artifact = runner_pb2.CreateArtifactRequest(
            kind=runner_pb2.ArtifactKind.Value(f"ARTIFACT_KIND_{kind}"),
            step=step,
            manifest=manifest_of(content),
        )
        request = pb.RunCreateArtifactRequest(artifact=artifact)
        made: runner_pb2.CreateArtifactResponse = await self.call("CreateArtifact", request)
        return made

    async def commit(self, artifact_id: str, *, is_adapter: bool = True, **metrics: float) -> None:
        request = runner_pb2.CommitArtifactRequest(
            artifact_id=artifact_id, is_adapter=is_adapter, metrics=metrics
        )
        await self.call("CommitArtifact", pb.RunCommitArtifactRequest(artifact=request))

    async def upload(self, kind: str, step: int, content: dict[str, bytes] | None = None) -> str:
        """Uploads a whole artifact, from promise to commit."""
        content = content or {
            "adapter_config.json": b"{}",
            "adapter_model.safetensors": f"{kind}-{step}".encode(),
        }
        begun = await self.begin_upload(kind, step, content)
        await self.agent.plane.upload(begun.uploads, content)
        is_adapter = "adapter_config.json" in content
        await self.commit(begun.artifact_id, is_adapter=is_adapter, train_loss=1.25)
        return begun.artifact_id

    async def finish(self, outcome: str = "SUCCEEDED", **fields: Any) -> None:
        request = runner_pb2.FinishRequest(
            outcome=runner_pb2.Outcome.Value(f"OUTCOME_{outcome}"), **fields
        )
        await self.call("Finish", pb.RunFinishRequest(finish=request))

    async def log(self, offset: int, data: bytes) -> int:
        answer = await self.call("AppendLog", pb.AppendLogRequest(offset=offset, data=data))
        return int(answer.stored)


@asynccontextmanager
async def running_jobs_plane(
    url: str,
    data: Path,
    settings: dict[str, Any] | None = None,
    *,
    name: str = "windlass",
    loops: bool = True,
    also: tuple[str, ...] = (),
) -> AsyncIterator[JobsPlane]:
    """Serves until the end of the block; raises what failed in it.

    Without `loops`, jobs answers calls and does nothing itself: the test takes each step.
    """
    data.mkdir(parents=True, exist_ok=True)
    made = Settings(data_dir=data, **(settings or {}))
    database = Database(url)
    gateway = TokenAuthority(database, kind="gateway", name="gateway")
    await gateway.rotate()
    socket = runtime_dir(data) / f"{name}.sock"
    # Named as its own so that stubs resolve; no test here calls inference.
    keyring = await open_keyring(made, database)
    app = make_app(
        made, (*SERVED, *also, "inference"), database=database, keyring=keyring,
        objects=make_store(made, keyring), url=url, socket=socket,
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        if not loops:
            stack.enter_context(mock.patch("windlass.jobs.module._loops"))
        for module in (*SERVED, *also):
            await import_module(f"windlass.{module}.module").build(app)
    stop = asyncio.Event()
    running = asyncio.create_task(app.run(stop, socket))
    ready = asyncio.create_task(app.ready.wait())
    await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
    try:
        async with grpc.aio.insecure_channel(f"unix://{socket}") as channel:
            yield JobsPlane(app, gateway, channel)
    finally:
        stop.set()
        await running
        await database.close()
