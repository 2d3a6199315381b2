"""A cluster whose devices are counted, as far as an agent's driver of engines sees it.

The driver, its servicer of keepers, the launcher of each lease's pod and all that this starts are
the real ones; the launcher is a process of this machine in the place of a container.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from tests.support.agents.file_store import Store, files
from tests.support.processes.windlass import free_port
from tests.support.waiting import until
from tests.unit.agent.kubernetes.render.test_lease import COUNTED
from tests.unit.agent.kubernetes.render.test_trainer_pods import with_trainers
from tests.unit.agent.kubernetes.test_tracked_engine import PATIENCE, POD

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1.keeper_pb2_grpc import add_KeeperServiceServicer_to_server
from windlass.kubernetes import labels
from windlass.tunnel.authority import Authority
from windlass_agent.executors.kubernetes.engines import driver as driving
from windlass_agent.executors.kubernetes.engines import residents as sitting
from windlass_agent.executors.kubernetes.engines.doors import Doors
from windlass_agent.executors.kubernetes.engines.driver import EnginePodDriver
from windlass_agent.executors.kubernetes.engines.hosts import Hosts
from windlass_agent.executors.kubernetes.engines.keepers import Keepers, KeeperServicer
from windlass_agent.executors.kubernetes.engines.launching import EngineLauncher
from windlass_agent.executors.kubernetes.engines.observed import (
    EngineRoot,
    EngineSnapshot,
    trim_deployment,
)
from windlass_agent.executors.kubernetes.engines.residents import Residents
from windlass_agent.executors.kubernetes.observe.snapshot import Key, PodSnapshot
from windlass_agent.executors.kubernetes.render import host as rendering
from windlass_agent.executors.kubernetes.render import parts
from windlass_agent.kube import ResourceNotFound
from windlass_agent.kube.resources import DEPLOYMENTS

# Versions of the store that workloads have.
VERSION = "mv-toy"
# Ports of endpoints, doors and health, for as many residents.
_RESIDENTS = 4


@dataclass
class HostedLease:
    """A Deployment of a lease, its pod, and the launcher in that."""

    root: EngineRoot
    pod: PodSnapshot
    folder: Path
    words: list[str]
    token: str
    process: asyncio.subprocess.Process = field(init=False)

    async def start(self) -> None:
        """Starts the launcher, as its container is."""
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*self.words, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def residents(self) -> Path:
        return self.folder / "residents"

    def left(self) -> list[psutil.Process]:
        """All that runs by this launcher."""
        return [one for one in psutil.process_iter() if str(self.folder) in _words(one)]


@dataclass(eq=False)
class HostingCluster:
    """The agent, and the leases that its launcher has made."""

    folder: Path
    store: Store
    authority: Authority = field(default_factory=Authority.make)
    leases: dict[str, HostedLease] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    numbers: "count[int]" = field(default_factory=count)
    driver: EnginePodDriver = field(init=False)
    looked: asyncio.Event = field(init=False)
    server: Any = None
    # Whether nodes take another pod.
    has_room: asyncio.Event = field(default_factory=asyncio.Event)

    async def start_agent(self) -> None:
        """Begins a life of the agent, which knows what the cluster shows and no more."""
        self.looked = asyncio.Event()
        self.has_room.set()
        keepers = Keepers(self.looked.set)
        hosts = Hosts(self.looked.set, keepers.drop)
        residents, there, nothing = Residents(hosts), _any(self), _any(None)
        settings = with_trainers(python=sys.executable).model_copy(
            update={
                "agent_ca": self.authority.certificate.decode(),
                "agent_address": f"127.0.0.1:{self.port}",
            }
        )
        self.driver = EnginePodDriver(
            cluster_id="cl-1", memory=nothing, informers=there, keepers=keepers,
            launcher=EngineLauncher(_any(_Api(self)), settings, there, residents),
            residents=residents, positions=dict, patience=PATIENCE, gpus=None,
            looked=self.looked, changed=lambda: None,
        )  # fmt: skip
        await self.driver.adopt()
        servicer = KeeperServicer(
            there, keepers, self.authority, self.driver.ordered,
            hosted=self.driver, hosts=hosts,
        )  # fmt: skip
        self.server = grpc.aio.server()
        add_KeeperServiceServicer_to_server(servicer, self.server)
        certificate, key = self.authority.issue("127.0.0.1")
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        self.server.add_secure_port(f"127.0.0.1:{self.port}", credentials)
        await self.server.start()

    async def stop_agent(self) -> None:
        """Ends a life of the agent; what runs goes on."""
        await self.server.stop(None)
        await self.driver.close()

    @property
    def doors(self) -> Doors:
        return Doors(self.authority, self.driver.address, port=self.driver.door_port)

    async def apply(self, made: pb.Workload) -> None:
        """Tells the driver of a workload, with the files of its model."""
        if made.HasField("engine"):
            made.engine.model_version_id = VERSION
            del made.engine.model_files[:]
            made.engine.model_files.extend(files(self.store, VERSION))
        await self.driver.apply(made)

    def status(self, name: str) -> pb.WorkloadStatus:
        """The status of a workload; empty of one that is gone."""
        found = (one for one in self.driver.statuses() if one.workload_id == name)
        return next(found, pb.WorkloadStatus())

    async def follow(self, say: Callable[..., None]) -> None:
        """Has `say` called with each status that differs and each end, until cancelled."""
        told: dict[str, pb.WorkloadStatus] = {}
        while True:
            now = {one.workload_id: one for one in self.driver.statuses()}
            for name in told.keys() - now.keys():
                say(name, pb.PHASE_STOPPED)
            for name, one in now.items():
                if one != told.get(name):
                    say(name, one.phase, one.reason, one.message)
            told = now
            await asyncio.sleep(0.05)

    async def reaches(self, name: str, phase: Any, reason: str = "") -> pb.WorkloadStatus:
        """Waits for a workload to be in a phase."""

        def there(said: pb.WorkloadStatus) -> bool:
            return said.phase == phase and reason in said.reason

        try:
            return await until(partial(self.status, name), 120, holds=there)
        except AssertionError:
            raise AssertionError(f"stands at {self.status(name)}") from None

    # What a driver asks of informers, of a cluster's capacity and of its API.

    settled = True

    async def run(self) -> None:
        await asyncio.Event().wait()

    def snapshots(self, positions: object) -> dict[str, EngineSnapshot]:
        return {
            name: EngineSnapshot(root=one.root, pods=(one.pod,))
            for name, one in self.leases.items()
        }

    def covered(self, namespace: str, queue: str) -> frozenset[str]:
        return COUNTED

    def choice(self, accelerator: str) -> None:
        return None

    async def find(self, token: str) -> PodSnapshot | None:
        """The pod of a token."""
        return next((one.pod for one in self.leases.values() if one.token == token), None)

    async def apply_object(self, path: str, item: Mapping[str, Any]) -> dict[str, Any]:
        uid = f"d-{next(self.numbers)}"
        made: dict[str, Any] = {**item, "metadata": {**item["metadata"], "uid": uid}}
        root = trim_deployment(DEPLOYMENTS, made)
        assert root is not None
        assert root.hosts
        await self.has_room.wait()
        self.leases[root.workload] = await self._launch(root, made["spec"]["template"])
        self.looked.set()
        return made

    async def delete(self, path: str, **options: Any) -> None:
        for name, one in list(self.leases.items()):
            if path.endswith(f"/{one.root.name}") and "deployments" in path:
                await self.end(one, signal.SIGTERM)
                del self.leases[name]
                self.looked.set()
                return
        raise ResourceNotFound(404, "NotFound", path)

    async def _launch(self, root: EngineRoot, template: Mapping[str, Any]) -> HostedLease:
        number = next(self.numbers)
        folder = self.folder / f"pod-{number}"
        (folder / "secrets").mkdir(parents=True)
        token = f"token-{number}"
        (folder / "secrets" / "token").write_text(token)
        note = template["metadata"]["annotations"][parts.CA_ANNOTATION]
        (folder / "secrets" / "ca.crt").write_text(note)
        (container,) = template["spec"]["containers"]
        words = [
            one.replace(parts.SECRETS, str(folder / "secrets")).replace(
                str(rendering.RESIDENTS), str(folder / "residents")
            )
            for one in container["command"]
        ]
        marks = template["metadata"]["labels"]
        pod = replace(
            POD, key=Key(marks[labels.WORKLOAD], 0), namespace=root.namespace,
            name=f"{root.name}-{number}", uid=f"u-{number}", address="127.0.0.1",
        )  # fmt: skip
        made = HostedLease(root, pod, folder, words, token)
        await made.start()
        return made

    async def end(self, lease: HostedLease, number: signal.Signals) -> None:
        """Ends the launcher of a pod, as the kubelet would or as the kernel does."""
        with suppress(ProcessLookupError):
            lease.process.send_signal(number)
        await asyncio.wait_for(lease.process.wait(), 60)

    async def close(self) -> None:
        """Ends all of it."""
        await self.stop_agent()
        for one in self.leases.values():
            await self.end(one, signal.SIGTERM)


def _any(value: object) -> Any:
    return value


def _words(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


class _Api:
    """The API of the cluster, of which the launcher of engines needs two calls."""

    def __init__(self, cluster: HostingCluster):
        self.apply = cluster.apply_object
        self.delete = cluster.delete


@asynccontextmanager
async def hosting_cluster(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HostingCluster]:
    """A cluster with an agent, whose residents have ports that are free here."""
    made = HostingCluster(folder, store)
    ports = _consecutive(3 * _RESIDENTS)
    monkeypatch.setattr(rendering, "ENDPOINT_PORT", ports)
    monkeypatch.setattr(rendering, "HEALTH_PORT", ports + _RESIDENTS)
    for module in (rendering, driving):
        monkeypatch.setattr(module, "DOOR_PORT", ports + 2 * _RESIDENTS)

    def resident(plan: Any, slot: int) -> Any:
        lease = made.leases[plan.workload.engine.trainer.lease_id]
        return rendering.resident(plan, slot, lease.residents)

    monkeypatch.setattr(sitting, "resident", resident)
    await made.start_agent()
    try:
        yield made
    finally:
        await made.close()


def _consecutive(number: int) -> int:
    """The first of so many ports that nothing listens on, and that nobody else gets."""
    while True:
        first, *others = (free_port() for _ in range(number))
        if others == list(range(first + 1, first + number)):
            return first
