"""The agent's Kubernetes executor against a real cluster and the real clusters service.

What jobs would be told is kept by `JobDesk`. Runners are `tests/support/agents/pod_stage`,
plain Python that obeys a file, unless a test asks for the real one.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import yaml
from tests.cluster.cluster import TestCluster
from tests.cluster.provision.site import REPOSITORY
from tests.support.fakes.job_desk import JobDesk
from tests.support.processes.windlass import free_port
from tests.support.services.clusters import OWNER, ControlPlane, running_control_plane
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2
from windlass.api.jobs.v1 import jobs_pb2_grpc as jobs_rpc
from windlass.kubernetes.names import object_name
from windlass_agent.agent import Agent
from windlass_agent.control_plane.connection import ControlPlane as Line
from windlass_agent.executors.kubernetes.assembly import kubernetes_executor
from windlass_agent.executors.kubernetes.executor import KubernetesExecutor
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.folders import socket_folder
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.kube import Kube
from windlass_agent.kube.resources import JOBS, PODS, Resource

MIB = 2**20
STAGE = REPOSITORY / "tests/support/agents/pod_stage"
SECONDS = 180.0
DEPLOYED = {"apiVersion": "v1", "kind": "ServiceAccount"}


@dataclass
class Driven:
    """A control plane, a cluster in it, a namespace there with a queue for two jobs at once."""

    cluster: TestCluster
    plane: ControlPlane
    desk: JobDesk
    enrolled: pb.EnrollResponse
    namespace: str
    queue: str
    port: int
    folder: Path
    document: dict[str, Any]
    kube: Kube
    statuses: dict[str, pb.WorkloadStatus] = field(default_factory=dict)
    phases: dict[str, list[int]] = field(default_factory=dict)
    # Of the agent that lives in this process.
    executor: KubernetesExecutor | None = None

    async def put(self, identifier: str, *, generation: int = 1, **values: Any) -> None:
        await self.plane.internal.PutWorkload(
            pb.PutWorkloadRequest(workload=self.workload(identifier, generation, **values))
        )

    def workload(
        self,
        identifier: str,
        generation: int = 1,
        *,
        attempt: int = 1,
        desired: "pb.DesiredState.ValueType" = pb.DESIRED_STATE_RUNNING,
        nodes: int = 1,
        memory_bytes: int = 256 * MIB,
        **place: Any,
    ) -> pb.Workload:
        placement = {"namespace": self.namespace, "queue": self.queue} | place
        return pb.Workload(
            id=identifier,
            kind=pb.WORKLOAD_KIND_RUN_TO_COMPLETION,
            owner=OWNER,
            project_id="proj_1",
            cluster_id=self.enrolled.cluster_id,
            generation=generation,
            desired=desired,
            placement=pb.Placement(**placement),
            resources=jobs_pb2.Resources(memory_bytes=memory_bytes),
            job=pb.JobWorkload(
                job_id=identifier, attempt=attempt, backend="trl", framework="trl", num_nodes=nodes
            ),
        )

    async def follow(self) -> None:
        watch = self.plane.internal.WatchStatus(pb.WatchStatusRequest(owner=OWNER))
        async for delta in watch:
            for status in delta.statuses:
                self.statuses[status.workload_id] = status
                self.phases.setdefault(status.workload_id, []).append(status.phase)

    async def reach(
        self,
        identifier: str,
        phase: "pb.Phase.ValueType",
        *,
        generation: int = 1,
        reason: str | None = None,
        seconds: float = SECONDS,
    ) -> pb.WorkloadStatus:
        def there() -> pb.WorkloadStatus | None:
            status = self.statuses.get(identifier)
            if status is None or (status.generation, status.phase) != (generation, phase):
                return None
            return status if reason in (None, status.reason) else None

        try:
            return await until(there, seconds)
        except AssertionError:
            raise AssertionError(f"{identifier}: {self.statuses.get(identifier)}") from None

    async def reach_all(self, phase: "pb.Phase.ValueType", *identifiers: str) -> None:
        for identifier in identifiers:
            await self.reach(identifier, phase)

    def told(self, identifier: str) -> list[str]:
        """The kinds of what was observed of a job."""
        status = self.statuses.get(identifier, pb.WorkloadStatus())
        return [one.key.partition("/")[2] for one in status.observations]

    async def objects(self, resource: Resource, job_id: str = "") -> list[dict[str, Any]]:
        """Those of ours in the namespace."""
        selector = f"windlass.dev/cluster={self.enrolled.cluster_id}"
        if job_id:
            selector += f",windlass.dev/job={job_id}"
        return await self.kube.list(resource.path(self.namespace), label_selector=selector)

    async def pods(self, job_id: str = "") -> list[str]:
        return [pod["metadata"]["name"] for pod in await self.objects(PODS, job_id)]

    async def sh(self, pod: str, script: str) -> str:
        command = ("exec", "-n", self.namespace, pod, "-c", "node", "--", "sh", "-c", script)
        return await asyncio.to_thread(self.cluster.kubectl, *command)

    async def tell(self, job_id: str, word: str) -> None:
        """Has a job's runner do something."""
        (pod,) = await self.pods(job_id)
        await self.sh(pod, f"echo {word} > /work/draft && mv /work/draft /work/do")

    async def logged(self, job_id: str, text: bytes) -> None:
        """Until this is all that arrived of a job's log."""
        await until(lambda: self.desk.log(job_id) == text, 30)

    async def queued(self, job_id: str, place: int) -> None:
        """Until a job is told to wait at this place of its queue."""
        await until(lambda: self.statuses[job_id].queue_position == place, 90)

    async def forget(self, identifier: str) -> None:
        """The control plane has never heard of it, as after another database was restored."""
        workloads = sa.text("DELETE FROM clusters_workloads WHERE id = :id")
        async with self.plane.app.database.begin() as connection:
            await connection.execute(workloads, {"id": identifier})

    async def gone(self, *job_ids: str) -> None:
        """Until the cluster has nothing of these jobs."""

        async def left() -> list[Any]:
            return [
                found
                for job_id in job_ids
                for resource in (JOBS, PODS)
                for found in await self.objects(resource, job_id)
            ]

        await until(left, SECONDS, holds=lambda found: not found, every=0.1)

    def listens(self) -> bool:
        """True where an agent hears runners, so has taken over what there is."""
        with socket.socket() as probe:
            probe.settimeout(0.2)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def settings(self, **changes: Any) -> ClusterSettings:
        return ClusterSettings.model_validate(self.document | changes)

    @contextlib.asynccontextmanager
    async def agent(self, **changes: Any) -> AsyncIterator[asyncio.Task[None]]:
        """The agent in this process; at the end it leaves its jobs alone."""
        address = self.plane.address
        line = Line(clusters=address, jobs=address, credential=self.enrolled.credential)
        changed = asyncio.Event()
        async with await Kube.connect(self.cluster.kubeconfig) as kube:
            executor = await kubernetes_executor(
                kube=kube,
                informers=ClusterInformers(kube),
                cluster_id=self.enrolled.cluster_id,
                control=line,
                settings=self.settings(**changes),
                listen=f"0.0.0.0:{self.port}",
                sockets=socket_folder(self.folder),
                changed=changed.set,
            )
            self.executor = executor
            task = asyncio.create_task(Agent(line, executor, changed, kind="kubernetes").run())
            try:
                yield task
            finally:
                if not task.done():
                    task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await line.close()

    @contextlib.contextmanager
    def agent_process(
        self, **environment: str
    ) -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
        """Starts agents as processes; kills the last one at the end."""
        started: list[subprocess.Popen[bytes]] = []
        credential, cluster = self.folder / "credential", self.folder / "cluster.yaml"
        credential.write_text(self.enrolled.credential)
        cluster.write_text(yaml.safe_dump(self.document))
        options = {
            "--control-plane": self.plane.address,
            "--credential-file": str(credential),
            "--executor": "kubernetes",
            "--cluster-file": str(cluster),
            "--kubeconfig": str(self.cluster.kubeconfig),
            "--runner-port": str(self.port),
            "--data": str(self.folder / "agent"),
        }
        words = [word for pair in options.items() for word in pair]
        path = os.pathsep.join(str(REPOSITORY / part) for part in ("services", "agent", "."))
        environment["WINDLASS_AGENT_CLUSTER_ID"] = self.enrolled.cluster_id

        def start() -> "subprocess.Popen[bytes]":
            with (self.folder / "agent.log").open("ab") as output:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "windlass_agent", *words],
                    env=os.environ | {"PYTHONPATH": path} | environment,
                    stdout=output,
                    stderr=output,
                )
            started.append(process)
            return process

        try:
            yield start
        finally:
            for process in started:
                process.kill()
                process.wait()


def document(cluster: TestCluster, namespace: str, port: int, *, stage: bool) -> dict[str, Any]:
    """The agent's settings for a cluster: this machine's Python instead of an image of ours."""
    python = cluster.volumes(namespace)
    paths = next(one["value"] for one in python.env if one["name"] == "PYTHONPATH")
    container = {
        "name": "node",
        "volumeMounts": python.mounts,
        # The node has few, and no test of these needs one.
        "resources": {"requests": {"cpu": "50m"}},
        "env": [{"name": "PYTHONPATH", "value": f"{STAGE}:{paths}" if stage else paths}],
    }
    return {
        "image": cluster.image,
        "python": python.program,
        "agent_namespace": namespace,
        "agent_address": f"{cluster.host}:{port}",
        "sizes": {"workdir_bytes": 512 * MIB, "tmp_bytes": 64 * MIB, "shm_bytes": 16 * MIB},
        "deadlines": {"unreachable": 5, "drain": 20, "grace": 10},
        "patience": {"setup": 3, "start": 15, "schedule": 5},
        "overlay": {"spec": {"volumes": python.volumes, "containers": [container]}},
    }  # fmt: skip


@contextlib.asynccontextmanager
async def driven(
    cluster: TestCluster, url: str, folder: Path, *, stage: bool = True, **queue: Any
) -> AsyncIterator[Driven]:
    """A world without an agent yet."""
    namespace = cluster.namespace("driven")
    account = DEPLOYED | {"metadata": {"name": "windlass-runner", "namespace": namespace}}
    cluster.apply(account)
    name = cluster.queues(namespace, **({"cpu": "2", "memory": "640Mi"} | queue))
    desk, port = JobDesk(), free_port()
    served = (desk, jobs_rpc.add_JobsAgentServiceServicer_to_server)
    async with (
        await Kube.connect(cluster.kubeconfig) as kube,
        running_control_plane(url, folder / "server", jobs=served) as plane,
    ):
        world = Driven(
            cluster, plane, desk, await plane.enroll(), namespace, name, port, folder,
            document(cluster, namespace, port, stage=stage),
            kube,
        )  # fmt: skip
        following = asyncio.create_task(world.follow())
        try:
            yield world
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            shutil.rmtree(plane.socket.parent)


def name_of(job_id: str, attempt: int = 1) -> str:
    """Of an attempt's objects."""
    return object_name(job_id, attempt)
