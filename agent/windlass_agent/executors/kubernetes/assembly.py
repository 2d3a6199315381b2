"""Puts a Kubernetes executor together."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.executors.adopted import AdoptedDriver
from windlass_agent.executors.gpu_meter import GpuMeter
from windlass_agent.executors.kubernetes.authority import kept_authority
from windlass_agent.executors.kubernetes.delivery import LogDelivery
from windlass_agent.executors.kubernetes.driver import KubernetesJobDriver
from windlass_agent.executors.kubernetes.engines.doors import Doors
from windlass_agent.executors.kubernetes.engines.driver import EnginePodDriver
from windlass_agent.executors.kubernetes.engines.hosts import Hosts
from windlass_agent.executors.kubernetes.engines.keepers import Keepers, KeeperServicer
from windlass_agent.executors.kubernetes.engines.launching import EngineLauncher
from windlass_agent.executors.kubernetes.engines.memory_lack import MemoryLack
from windlass_agent.executors.kubernetes.engines.observed import EngineInformers
from windlass_agent.executors.kubernetes.engines.prometheus import PrometheusGpus
from windlass_agent.executors.kubernetes.engines.residents import Residents
from windlass_agent.executors.kubernetes.executor import KubernetesExecutor, OtherDriver
from windlass_agent.executors.kubernetes.launching import Launcher
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.executors.kubernetes.observe.informers import AttemptInformers
from windlass_agent.executors.kubernetes.observe.queue_positions import QueuePositions
from windlass_agent.executors.kubernetes.runners import PodTokens, RunnerListener
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.executors.kubernetes.worker import Worker
from windlass_agent.federation.remote_workloads import GuestDriver
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.kube import Kube
from windlass_agent.kueue import Kueue

# How long open requests keep the way to a serving stack that should end.
STACK_DRAIN_SECONDS = 60.0


async def kubernetes_executor(
    *,
    kube: Kube,
    informers: ClusterInformers,
    cluster_id: str,
    control: ControlPlane,
    settings: ClusterSettings,
    listen: str,
    sockets: Path,
    changed: Callable[[], None],
    notes: OtherDriver | None = None,
) -> KubernetesExecutor:
    """The executor of one agent, whose runners call at `listen`.

    `cluster_id` marks what is ours, `sockets` is the folder of the agent's own, and `notes` is the
    driver of a proxy's. The executor keeps `informers` up to date. Raises KubeError when the
    agent's Secret is out of reach.
    """
    authority = await kept_authority(kube, settings.agent_namespace)
    settings = settings.model_copy(update={"agent_ca": authority.certificate.decode()})
    jobs_looked, engines_looked = asyncio.Event(), asyncio.Event()

    def look() -> None:
        jobs_looked.set()
        engines_looked.set()

    capacity = ClusterCapacity(informers, settings, look)
    attempts = AttemptInformers(kube, cluster_id=cluster_id, capacity=capacity, changed=look)
    positions = QueuePositions(
        Kueue(kube),
        capacity,
        waiting=lambda: [*jobs.waiting(), *engines.waiting()],
        changed=look,
    )
    launcher = Launcher(kube, settings, capacity)
    jobs = KubernetesJobDriver(
        cluster_id=cluster_id,
        launcher=launcher,
        informers=attempts,
        positions=positions,
        worker=Worker(
            launcher, LogDelivery(kube, control), patience=settings.patience, changed=changed
        ),
        patience=settings.patience,
        looked=jobs_looked,
        changed=changed,
    )
    keepers = Keepers(engines_looked.set)
    hosts = Hosts(engines_looked.set, keepers.drop)
    residents = Residents(hosts)
    engines = EnginePodDriver(
        cluster_id=cluster_id,
        launcher=EngineLauncher(kube, settings, capacity, residents),
        memory=MemoryLack(kube, settings.engines, capacity),
        informers=EngineInformers(
            kube,
            cluster_id=cluster_id,
            attempts=attempts,
            capacity=capacity,
            changed=engines_looked.set,
        ),
        keepers=keepers,
        residents=residents,
        positions=lambda: positions.positions,
        patience=settings.patience,
        gpus=GpuMeter(PrometheusGpus(asked)) if (asked := settings.engines.prometheus) else None,
        looked=engines_looked,
        changed=changed,
    )
    pod_tokens = PodTokens(kube, find_pod=engines.pod, registered=lambda pod: pod)
    runners = RunnerListener(
        PodTokens(kube, find_pod=attempts.pod, registered=jobs.registered),
        control,
        KeeperServicer(
            pod_tokens,
            keepers,
            authority,
            engines.ordered,
            engines.broken,
            engines.awaits_weights,
            hosted=engines,
            hosts=hosts,
        ),
        authority=authority,
        listen=listen,
        host=settings.agent_address.rpartition(":")[0].strip("[]"),
    )
    guests = GuestDriver(kube, cluster_id=cluster_id, admission=attempts.admission, changed=changed)
    stacks = AdoptedDriver(sockets=sockets, drain_seconds=STACK_DRAIN_SECONDS, changed=changed)
    others: dict[str, OtherDriver] = {"engine": engines, "stack": stacks, "guest": guests}
    if notes is not None:
        others["note"] = notes
    doors = Doors(authority, engines.address, port=engines.door_port)
    return KubernetesExecutor(
        jobs, runners, capacity, changed=changed, others=others, engines=engines, doors=doors
    )
