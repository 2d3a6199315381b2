"""Assembly of the agent of a Kubernetes cluster."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from windlass_agent.cluster_controller import ClusterController
from windlass_agent.config import AgentSettings
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.executors.kubernetes.assembly import kubernetes_executor
from windlass_agent.executors.kubernetes.executor import KubernetesExecutor
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.federation.proxy import Proxy
from windlass_agent.folders import socket_folder
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.inventory.issuer import IssuerReport
from windlass_agent.kube import Kube, KubeError, NoAccess
from windlass_agent.kube.credentials import SecretCredentials
from windlass_agent.namespaces.manifests import ManifestContext
from windlass_agent.tunnel.kubernetes import KubernetesApi
from windlass_agent.tunnel.open_connections import OpenConnections
from windlass_agent.tunnel.picking.chooser import ReplicaChooser
from windlass_agent.tunnel.targets import Targets
from windlass_agent.tunnel.tunnel import Tunnel


@asynccontextmanager
async def kubernetes_parts(
    settings: AgentSettings,
    control: ControlPlane,
    changed: Callable[[], None],
    open_connections: OpenConnections,
) -> AsyncIterator[tuple[KubernetesExecutor, ClusterController]]:
    """The executor and the controller; raises OSError that says what is out of reach."""
    cluster = _cluster_settings(settings)
    try:
        kube = await Kube.connect(settings.kubeconfig)
    except NoAccess as error:
        raise OSError(f"no access to a cluster: {error}") from error
    async with kube:
        context = ManifestContext(account=settings.account, roles=settings.roles, settings=cluster)
        informers = ClusterInformers(kube)
        controller = ClusterController(kube, informers, control, context)
        proxy = None
        if cluster.federation:
            proxy = Proxy(kube, control, is_ours=controller.has, changed=changed)
        try:
            executor = await kubernetes_executor(
                kube=kube,
                informers=informers,
                cluster_id=settings.cluster_id,
                control=control,
                settings=cluster,
                listen=f"[::]:{settings.runner_port}",
                sockets=socket_folder(settings.data_dir),
                changed=changed,
                notes=proxy,
            )
        except KubeError as error:
            raise OSError(
                f"no access to the Secret in {cluster.agent_namespace}: {error.message}"
            ) from error
        chooser = ReplicaChooser(cluster.engines.pickers, executor.alike)
        targets = Targets(
            endpoint=executor.endpoint,
            kubernetes=KubernetesApi(kube.access, controller.accounts),
            doors=executor.doors,
            chooser=chooser,
        )
        controller.attach(Tunnel(control, targets, open_connections).run)
        controller.attach(IssuerReport(kube.get, control.report_issuer).run)
        if proxy is not None:
            controller.attach(proxy.run)
        try:
            yield executor, controller
        finally:
            await chooser.close()


@asynccontextmanager
async def secret_store(settings: AgentSettings) -> AsyncIterator[SecretCredentials]:
    """Yields where the credential is kept in the cluster; raises OSError that says what is
    wrong.
    """
    namespace = _cluster_settings(settings).agent_namespace
    try:
        kube = await Kube.connect(settings.kubeconfig)
    except NoAccess as error:
        raise OSError(f"no access to a cluster: {error}") from error
    async with kube:
        try:
            yield SecretCredentials(kube, namespace, settings.credential_secret)
        except KubeError as error:
            raise OSError(f"the agent's credential cannot be accessed: {error.message}") from error


def _cluster_settings(settings: AgentSettings) -> ClusterSettings:
    if settings.cluster_file is None:
        return ClusterSettings()
    return ClusterSettings.load(settings.cluster_file, overlay=settings.pod_template_file)
