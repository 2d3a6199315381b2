"""Connections from the agent to the doors of engines' pods."""

import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from windlass.kubernetes.names import engine_name
from windlass_agent.executors.kubernetes.authority import Authority, is_stale
from windlass_agent.executors.kubernetes.render.engine_pod import DOOR_PORT


class Doors:
    """The way to a pod: its address, what it is called there, and the agent's own certificate."""

    def __init__(
        self, authority: Authority, address: Callable[[str], str], *, port: int = DOOR_PORT
    ):
        """`address` returns the address of the pod that serves a workload; empty if none does."""
        self._address = address
        self._port = port
        self._authority = authority
        self._certificate = b""
        self.tls = ssl.create_default_context(cadata=authority.certificate.decode())
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_3
        self._renew()

    def _renew(self) -> None:
        """Shows a new certificate from the next connection on."""
        self._certificate, key = self._authority.client()
        with tempfile.TemporaryDirectory(prefix="windlass-agent-") as folder:
            files = Path(folder) / "client.crt", Path(folder) / "client.key"
            for path, content in zip(files, (self._certificate, key), strict=True):
                path.touch(mode=0o600)
                path.write_bytes(content)
            self.tls.load_cert_chain(*files)

    def find(self, workload_id: str) -> tuple[str, int, str] | None:
        """Host, port and name of the door of a workload that serves; None of any other."""
        if is_stale(self._certificate):
            self._renew()
        address = self._address(workload_id)
        return (address, self._port, engine_name(workload_id)) if address else None
