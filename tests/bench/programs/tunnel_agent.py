"""The agent's end of a tunnel: CONTROL_PLANE CREDENTIAL API_URL API_CA CA ENGINE as arguments."""

import ssl
import sys
from pathlib import Path

from windlass.core.ids import new_id
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.kube.access import Access
from windlass_agent.loop import run
from windlass_agent.namespaces.controller import Accounts
from windlass_agent.tunnel.kubernetes import KubernetesApi
from windlass_agent.tunnel.targets import Targets
from windlass_agent.tunnel.tunnel import Tunnel


async def serve(
    control_plane: str, credential: str, url: str, api_ca: str, ca: str, engine: str
) -> None:
    """Serves for ever, as accounts of any namespace; every workload answers at `engine`."""

    async def authorization() -> str:
        return "Bearer bench"

    access = Access(url, ssl.create_default_context(cafile=api_ca), authorization)
    control = ControlPlane(
        clusters=control_plane, jobs=control_plane, credential=credential,
        ca=Path(ca) if ca else None,
    )  # fmt: skip
    api = KubernetesApi(access, lambda namespace: Accounts("viewer", "editor"))
    targets = Targets(endpoint=lambda workload_id: engine, kubernetes=api)
    await Tunnel(control, targets).run(new_id("session-"))


if __name__ == "__main__":
    run(serve(*sys.argv[1:7]))
