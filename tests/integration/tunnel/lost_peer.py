"""A machine of its own that loses its network under open connections; says which of them ended.

Run as root of a network namespace: `unshare --net --map-root-user python -m …`.
"""

import asyncio
import subprocess
import sys

from windlass.tunnel import loss
from windlass_agent.tunnel.sockets import Socket, connect

loss.IDLE_SECONDS, loss.PROBE_SECONDS, loss.PROBES = 1, 1, 2
loss.UNACKNOWLEDGED_SECONDS = 2
PATIENCE = 60.0


async def main() -> None:
    """Prints the names of the connections that ended, once both that should have did."""
    _set_network("up")
    loop = asyncio.get_running_loop()
    peers: list[Socket] = []

    def accept() -> Socket:
        peers.append(Socket())
        return peers[-1]

    server = await loop.create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, unwatched = await loop.create_connection(Socket, "127.0.0.1", port)
    made = {"rests": await connect("127.0.0.1", port), "asks": await connect("127.0.0.1", port)}
    reads = {name: asyncio.create_task(one.read()) for name, one in made.items()}
    reads["unwatched"] = asyncio.create_task(unwatched.read())
    _set_network("down")
    await made["asks"].write(b"A question.")
    await asyncio.wait([reads["rests"], reads["asks"]], timeout=PATIENCE)
    sys.stdout.write(" ".join(name for name, read in reads.items() if read.done()))
    for read in reads.values():
        read.cancel()


def _set_network(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


asyncio.run(main())
