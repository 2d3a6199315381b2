"""A real nginx in front of everything, with the configuration that we ship."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.environments.required import lacking
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

from windlass.sessions.listener.certificates import own_certificate

CONFIGURATION = Path(__file__).parents[3] / "deploy" / "ingress" / "nginx.conf"


@dataclass
class Ingress:
    """A running nginx."""

    port: int
    ca: Path
    process: "subprocess.Popen[bytes]"
    configuration: Path

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def reload(self) -> None:
        """Reloads nginx: new workers take over, and old ones keep their connections."""
        before = self._workers()
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not self._workers() <= before, "a new worker", every=0.02)

    def _workers(self) -> set[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return {int(word) for word in path.read_text().split()}


def program() -> str:
    """Returns the path of nginx; skips or fails the test if there is none."""
    found = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if found is None:
        lacking("nginx is not installed: apt-get install nginx")
    return found


@contextmanager
def running_ingress(folder: Path, ports: Mapping[int, int], *, idle: str) -> Iterator[Ingress]:
    """Runs until the end of the block: `ports` replaces those of the servers behind it.

    `idle` replaces the shipped timeout of silent connections.
    """
    nginx = program()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    certificate, key, ca = own_certificate(folder / "tls", {"localhost", "127.0.0.1"})
    port = free_port()
    text = CONFIGURATION.read_text()
    for shipped, ours in ports.items():
        text = text.replace(f"127.0.0.1:{shipped}", f"127.0.0.1:{ours}")
    text = re.sub(r"(_timeout) (60s|1h|10m);", rf"\1 {idle};", text)
    replaced = {
        "worker_shutdown_timeout 1h": "worker_shutdown_timeout 5m",
        f"worker_shutdown_timeout {idle}": "worker_shutdown_timeout 5m",
        "listen 443": f"listen 127.0.0.1:{port}",
        "windlass.example.com;": "localhost;",
        "/etc/windlass/tls.crt": str(certificate),
        "/etc/windlass/tls.key": str(key),
        "/run/nginx.pid": str(folder / "nginx.pid"),
        "/var/log/nginx/error.log": str(folder / "error.log"),
        "worker_processes auto": "worker_processes 1",
        "http {": "http {\n" + _temporary(folder),
    }
    for line, placed in replaced.items():
        text = text.replace(line, placed)
    configuration = folder / "nginx.conf"
    user = "user root;\n" if os.geteuid() == 0 else ""
    configuration.write_text(f"daemon off;\n{user}{text}")
    command = [nginx, "-p", str(folder), "-c", str(configuration), "-e", str(folder / "error.log")]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        _wait(process, folder / "nginx.pid")
        yield Ingress(port, ca, process, configuration)
    finally:
        process.terminate()
        process.wait(20)


def _temporary(folder: Path) -> str:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in kinds)


def _wait(process: "subprocess.Popen[bytes]", pid: Path) -> None:
    def started() -> bool:
        assert process.poll() is None, "nginx did not start"
        return pid.exists() and bool(pid.read_text().strip())

    wait_until(started, "nginx", every=0.02)
