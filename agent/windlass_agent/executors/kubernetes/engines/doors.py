"""Connections from the agent to the doors of engines' pods."""

import ssl
from collections.abc import Callable

from windlass.kubernetes.names import engine_name
from windlass.tunnel.authority import Authority, ClientIdentity
from windlass_agent.executors.kubernetes.render.engine_pod import DOOR_PORT


class Doors:
    """The way to a pod: its address, what it is called there, and the agent's own certificate."""

    def __init__(
        self,
        authority: Authority,
        address: Callable[[str], str],
        *,
        port: Callable[[str], int] = lambda _: DOOR_PORT,
    ):
        """`address` returns the address of the pod that serves a workload; empty if none does.

        `port` is that of the workload's door.
        """
        self._address = address
        self._port = port
        tls = ssl.create_default_context(cadata=authority.certificate.decode())
        self._identity = ClientIdentity(authority, tls)

    @property
    def tls(self) -> ssl.SSLContext:
        """Shows who we are, and trusts what our own authority has certified."""
        return self._identity.tls

    def find(self, workload_id: str) -> tuple[str, int, str] | None:
        """Host, port and name of the door of a workload that serves; None of any other."""
        address = self._address(workload_id)
        if not address:
            return None
        return address, self._port(workload_id), engine_name(workload_id)
