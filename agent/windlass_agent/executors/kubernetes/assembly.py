"""Puts a Kubernetes executor together."""

import asyncio
from collections.abc import Callable

from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.executors.kubernetes.authority import kept_authority
from windlass_agent.executors.kubernetes.delivery import LogDelivery
from windlass_agent.executors.kubernetes.driver import KubernetesJobDriver
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


async def kubernetes_executor(
    *,
    kube: Kube,
    informers: ClusterInformers,
    cluster_id: str,
    control: ControlPlane,
    settings: ClusterSettings,
    listen: str,
    changed: Callable[[], None],
    notes: OtherDriver | None = None,
) -> KubernetesExecutor:
    """The executor of one agent, whose runners call at `listen`.

    `cluster_id` marks what is ours; `notes` is the driver of a proxy's. The executor keeps
    `informers` up to date. Raises KubeError when the agent's Secret is out of reach.
    """
    authority = await kept_authority(kube, settings.agent_namespace)
    settings = settings.model_copy(update={"agent_ca": authority.certificate.decode()})
    looked = asyncio.Event()
    capacity = ClusterCapacity(informers, settings, looked.set)
    attempts = AttemptInformers(kube, cluster_id=cluster_id, capacity=capacity, changed=looked.set)
    launcher = Launcher(kube, settings, capacity)
    jobs = KubernetesJobDriver(
        cluster_id=cluster_id,
        launcher=launcher,
        informers=attempts,
        positions=QueuePositions(
            Kueue(kube), capacity, waiting=lambda: jobs.waiting(), changed=looked.set
        ),
        worker=Worker(
            launcher, LogDelivery(kube, control), patience=settings.patience, changed=changed
        ),
        patience=settings.patience,
        looked=looked,
        changed=changed,
    )
    runners = RunnerListener(
        PodTokens(kube, find_pod=attempts.pod, registered=jobs.registered),
        control,
        authority=authority,
        listen=listen,
        host=settings.agent_address.rpartition(":")[0].strip("[]"),
    )
    guests = GuestDriver(kube, cluster_id=cluster_id, admission=attempts.admission, changed=changed)
    others: dict[str, OtherDriver] = {"guest": guests}
    if notes is not None:
        others["note"] = notes
    return KubernetesExecutor(jobs, runners, capacity, changed=changed, others=others)
