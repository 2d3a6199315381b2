"""Windlass as processes: one for everything, or one for each target."""

import contextlib
import itertools
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.support.clients.trust import trusted
from tests.support.processes import warm
from tests.support.waiting import wait_until

from windlass.core.app import runtime_dir

START_SECONDS = 90

# Settings of one that trains once: the trainer kept ready afterwards costs as much as many a test.
NO_SPARE: dict[str, Any] = {"agent": {"spare_trainers": 0}}


# Below those that the kernel gives to connections; each worker of xdist has its own.
_PORTS = 3000
_FIRST_PORT = 10_000 + _PORTS * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 6)
_TURNS = itertools.count(secrets.randbelow(_PORTS))


def free_port() -> int:
    """Returns a port that nothing listens on, and that nobody else gets meanwhile."""
    for turn in itertools.islice(_TURNS, _PORTS):
        port = _FIRST_PORT + turn % _PORTS
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


@dataclass
class Windlass:
    """A running installation."""

    data: Path
    port: int
    processes: dict[str, warm.Process] = field(default_factory=dict)
    configs: dict[str, Path] = field(default_factory=dict)
    # The servers behind one balancer, where there are several.
    replicas: "list[Windlass]" = field(default_factory=list)
    # Lists what the object store holds, where that is no folder of `data`.
    objects: Callable[[], set[str]] | None = None
    # The certificate to trust, where the gateway has one.
    ca: Path | None = None
    host: str = "127.0.0.1"
    # Variables of each process, beside this one's.
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    # Whether each process is an interpreter of its own, not a fork.
    cold: bool = False

    @property
    def url(self) -> str:
        return f"{'https' if self.ca else 'http'}://{self.host}:{self.port}"

    @property
    def owner_key(self) -> str:
        return (self.data / "owner.key").read_text().strip()

    def operations(self, name: str = "windlass") -> str:
        """Returns the address of the operators' listener of a process."""
        return (runtime_dir(self.data) / f"{name}.operations").read_text().strip()

    def http(self, key: str | None = None) -> httpx.Client:
        return httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key or self.owner_key}"},
            timeout=60,
            verify=trusted(),
        )

    def openai(self, key: str | None = None, **options: Any) -> Any:
        from openai import DefaultHttpxClient, OpenAI

        options.setdefault("http_client", DefaultHttpxClient(verify=trusted()))
        options.setdefault("timeout", 600)
        return OpenAI(base_url=f"{self.url}/v1", api_key=key or self.owner_key, **options)

    def start(self, name: str = "all") -> None:
        """Starts the process of that name, or every process if none has it."""
        if name not in self.configs:
            for one in self.configs:
                self.start(one)
            return
        words = ("windlass", "serve", "--config", str(self.configs[name]))
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", **self.environments.get(name, {})}
        with (self.data / f"{name}.log").open("ab") as log:
            self.processes[name] = warm.start(
                *words, environment=environment, log=log, session=True, cold=self.cold
            )

    def wait_ready(self, seconds: float = START_SECONDS, *, every: float = 0.05) -> None:
        """Waits until the gateway is ready; raises AssertionError if a process ends before."""
        trust = trusted(self.ca)
        last = ""

        def ready() -> bool:
            nonlocal last
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} ended: {self.log(name)[-3000:]}"
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(f"{self.url}/readyz", timeout=5, verify=trust)
                last = answer.text
                return answer.is_success
            return False

        try:
            wait_until(ready, "ready", seconds, every=every)
        except TimeoutError as error:
            raise AssertionError(f"{error}: {last}\n{self.logs()}") from error

    def kill(self, name: str = "all") -> None:
        """Kills one process, or all, with SIGKILL; their children live on."""
        killed = [self.processes[name]] if name in self.processes else self.processes.values()
        for process in killed:
            process.kill()
            process.wait()

    def terminate(self, name: str, *, seconds: float = 40) -> None:
        """Asks one process to stop, and waits until it has."""
        self.processes[name].send_signal(signal.SIGTERM)
        assert self.processes[name].wait(seconds) == 0, self.log(name)[-3000:]

    def log(self, name: str = "all") -> str:
        if self.replicas:
            return "\n".join(one.log(name) for one in self.replicas)
        if name not in self.configs:
            return self.logs()
        return (self.data / f"{name}.log").read_text(errors="replace")

    def logs(self) -> str:
        if self.replicas:
            return "\n".join(one.logs() for one in self.replicas)
        return "\n".join(f"--- {name}\n{self.log(name)[-2000:]}" for name in self.processes)

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def merged(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings with others merged into them, section by section."""
    document = dict(base)
    for key, value in extra.items():
        old = document.get(key)
        document[key] = {**old, **value} if isinstance(old, dict) else value
    return document


def make_single(
    data: Path, settings: Mapping[str, Any] | None = None, *, cold: bool = False
) -> Windlass:
    """Configures one process with everything, including its own Postgres."""
    # Passable, so that the database need not move out of it under root.
    data.mkdir(parents=True, exist_ok=True, mode=0o711)
    windlass = Windlass(data, free_port(), cold=cold)
    base = {"data_dir": str(data), "http": {"port": windlass.port}}
    path = data / "all.yaml"
    path.write_text(yaml.safe_dump(merged(base, settings or {})))
    windlass.configs["all"] = path
    return windlass


@contextlib.contextmanager
def running(windlass: Windlass, *, divisible: bool = True) -> Iterator[Windlass]:
    """Starts every process, waits until ready, stops all at the end.

    The database of a new data folder is a copy, unless the installation is cold.
    With INTEGRATION_SHAPE="one process per target" what is one process is divided, unless the test
    is of one process.
    """
    with _in_shape(windlass) if divisible else contextlib.nullcontext():
        try:
            _fill_database(windlass)
            for name in windlass.configs:
                windlass.start(name)
            windlass.wait_ready()
            yield windlass
        finally:
            windlass.stop()


def _fill_database(windlass: Windlass) -> None:
    if windlass.cold or list(windlass.configs) != ["all"]:
        return
    from tests.support.databases.made import fill

    settings = yaml.safe_load(windlass.configs["all"].read_text())
    if "database" not in settings:
        fill(windlass.data / "postgres")


def _in_shape(windlass: Windlass) -> contextlib.AbstractContextManager[None]:
    if not os.environ.get("INTEGRATION_SHAPE") or list(windlass.configs) != ["all"]:
        return contextlib.nullcontext()
    from tests.support.processes.shapes import divided

    return divided(windlass)
