"""The agent's end of a tunnel as a process: `tunnel_agent.py ADDRESS CREDENTIAL ENDPOINT`.

Every workload that a connection names answers at ENDPOINT.
"""

import asyncio
import sys

from windlass.core.ids import new_id
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.tunnel.targets import Targets
from windlass_agent.tunnel.tunnel import Tunnel


async def main(address: str, credential: str, endpoint: str) -> None:
    """Keeps the tunnel until killed."""
    control = ControlPlane(clusters=address, jobs=address, credential=credential)
    await Tunnel(control, Targets(endpoint=lambda _: endpoint)).run(new_id("session-"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
