"""What an agent of a Kubernetes cluster consists of."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.config import AgentSettings
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.executors.kubernetes.assembly import kubernetes_executor
from windlass_agent.executors.kubernetes.executor import KubernetesExecutor
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.federation.proxy import Proxy
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.kube import Kube, KubeError, NoAccess
from windlass_agent.kube.credentials import SecretCredentials
from windlass_agent.namespaces.manifests import ManifestContext
from windlass_agent.premises import Premises
from windlass_agent.tunnel.kubernetes import KubernetesApi
from windlass_agent.tunnel.targets import Targets
from windlass_agent.tunnel.tunnel import Tunnel


class Grounds:
    """The keeper of a cluster: its inventory, its spaces, the way into it, what it federates."""

    def __init__(self, premises: Premises, tunnel: Tunnel, proxy: Proxy | None):
        self._premises = premises
        self._tunnel = tunnel
        self._proxy = proxy

    def take(self, spec: pb.ClusterSpec) -> None:
        """What the cluster should have from now on."""
        self._premises.take(spec)

    async def run(self, session_id: str) -> None:
        """Until cancelled, within a session that the control plane has accepted."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._premises.run(session_id))
            group.create_task(self._tunnel.run(session_id))
            if self._proxy is not None:
                group.create_task(self._proxy.run())


@asynccontextmanager
async def kubernetes_parts(
    settings: AgentSettings, control: ControlPlane, changed: Callable[[], None]
) -> AsyncIterator[tuple[KubernetesExecutor, Grounds]]:
    """The executor and the keeper; raises OSError that says what is out of reach."""
    cluster = _cluster_settings(settings)
    try:
        kube = await Kube.connect(settings.kubeconfig)
    except NoAccess as error:
        raise OSError(f"no access to a cluster: {error}") from error
    async with kube:
        context = ManifestContext(account=settings.account, roles=settings.roles, settings=cluster)
        informers = ClusterInformers(kube)
        premises = Premises(kube, informers, control, context)
        targets = Targets(
            endpoint=lambda _: "", kubernetes=KubernetesApi(kube.access, premises.accounts)
        )
        proxy = None
        if cluster.federation:
            proxy = Proxy(kube, control, is_ours=premises.has, changed=changed)
        try:
            executor = await kubernetes_executor(
                kube=kube,
                informers=informers,
                cluster_id=settings.cluster_id,
                control=control,
                settings=cluster,
                listen=f"[::]:{settings.runner_port}",
                changed=changed,
                notes=proxy,
            )
        except KubeError as error:
            raise OSError(
                f"the agent's Secret in {cluster.agent_namespace} is out of reach: {error.message}"
            ) from error
        yield executor, Grounds(premises, Tunnel(control, targets), proxy)


@asynccontextmanager
async def secret_store(settings: AgentSettings) -> AsyncIterator[SecretCredentials]:
    """Where the credential is kept in the cluster; raises OSError that says what is wrong."""
    namespace = _cluster_settings(settings).agent_namespace
    try:
        kube = await Kube.connect(settings.kubeconfig)
    except NoAccess as error:
        raise OSError(f"no access to a cluster: {error}") from error
    async with kube:
        try:
            yield SecretCredentials(kube, namespace, settings.credential_secret)
        except KubeError as error:
            raise OSError(f"the agent's credential is out of reach: {error.message}") from error


def _cluster_settings(settings: AgentSettings) -> ClusterSettings:
    if settings.cluster_file is None:
        return ClusterSettings()
    return ClusterSettings.load(settings.cluster_file, overlay=settings.pod_template_file)
