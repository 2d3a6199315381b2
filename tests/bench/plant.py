"""System under test: Windlass as processes on a Postgres with production settings."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.factories.feather import make_feather
from tests.support.processes.windlass import (
    Windlass,
    free_port,
    make_single,
    merged,
    running,
)
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.core.app import runtime_dir
from windlass.core.config import Settings
from windlass.embedded_postgres import EmbeddedPostgres
from windlass.serve import socket_name
from windlass.targets import MODULES

# Scripts that subjects start as processes.
PROGRAMS = Path(__file__).with_name("programs")

MODEL = "bench-base"
SERVICES = [name for name, module in MODULES.items() if module.service and name != "gateway"]
# No agent but the bench's own, and no limit that a bench could meet unless it sets one.
NO_AGENT: dict[str, Any] = {"agent": {"enabled": False}, "log_level": "WARNING"}
# For an agent of the bench's own that takes thousands of jobs.
MANY_JOBS = {**NO_AGENT, "quotas": {"jobs": 0, "running_jobs": 0}}


@dataclass(frozen=True)
class Plant:
    """A running installation and where its gRPC answers."""

    windlass: Windlass
    grpc_address: str
    folder: Path

    def pid(self, name: str = "all") -> int:
        """The process of a configuration."""
        return self.windlass.processes[name].pid

    def client(self) -> Client:
        """The SDK with the owner's key."""
        return Client(self.windlass.url, self.windlass.owner_key, timeout=300)

    def import_model(self, name: str = MODEL) -> str:
        """Brings in a base model that nothing could compute with."""
        source = make_feather(self.folder / name)
        with self.client() as client:
            client.models.import_folder(name, source)
        return name

    def serve(self, model: str, **settings: Any) -> None:
        """Sets how a model is served, and waits until its least number of engines answers."""
        path, least = f"/v1/servings/{model}", settings.setdefault("min_replicas", 1)
        with self.windlass.http() as http:
            http.put(path, json=settings).raise_for_status()
            wait_until(lambda: http.get(path).json()["ready_replicas"] >= least, f"{model} answers")

    def training_file(self, examples: int = 100) -> str:
        """Uploads a small chat file; answers its id."""
        path = self.folder / "train.jsonl"
        messages = [
            {"role": "user", "content": "What is your name?"},
            {"role": "assistant", "content": "Windlass."},
        ]
        path.write_text((json.dumps({"messages": messages}) + "\n") * examples)
        with self.client() as client:
            return str(client.openai.files.create(file=path, purpose="fine-tune").id)

    def job_body(self) -> bytes:
        """The request that creates a job, as openai-python writes it."""
        return json.dumps(
            {
                "model": self.import_model(),
                "training_file": self.training_file(),
                "suffix": "bench",
                "seed": 7,
                "metadata": {"team": "bench", "purpose": "load"},
                "method": {
                    "type": "supervised",
                    "supervised": {"hyperparameters": {"n_epochs": 3, "batch_size": "auto"}},
                },
            }
        ).encode()


@contextmanager
def single(settings: Mapping[str, Any] = NO_AGENT) -> Iterator[Plant]:
    """Everything in one process, as `windlass serve` is by default."""
    with reachable_folder() as folder:
        windlass = make_single(folder / "data", settings, cold=True)
        try:
            with running(windlass):
                socket = runtime_dir(windlass.data) / "windlass.sock"
                yield Plant(windlass, f"unix:{socket}", folder)
        finally:
            remove_database(windlass.data)


@asynccontextmanager
async def postgres(folder: Path) -> AsyncIterator[str]:
    """A Postgres as `serve` would start it, until the end of the block."""
    server = EmbeddedPostgres(folder / "database" / "postgres")
    (folder / "database").mkdir()
    url = await server.start()
    try:
        yield url
    finally:
        await server.stop()
        await asyncio.to_thread(remove_database, folder / "database")


@asynccontextmanager
async def served_on(settings: Mapping[str, Any]) -> AsyncIterator[tuple[Plant, str]]:
    """Everything in one process, on a Postgres whose URL the bench knows too."""
    with reachable_folder() as folder:
        async with postgres(folder) as url:
            database = {"url": url.replace("+psycopg", "")}
            windlass = make_single(folder / "data", {**settings, "database": database}, cold=True)
            with running(windlass):
                socket = runtime_dir(windlass.data) / "windlass.sock"
                yield Plant(windlass, f"unix:{socket}", folder), url


@asynccontextmanager
async def split_gateway(settings: Mapping[str, Any]) -> AsyncIterator[Plant]:
    """Two processes, `gateway` and `services`, so that the gateway's cost shows alone."""
    with reachable_folder() as folder:
        async with postgres(folder) as url:
            windlass = _configured(folder / "data", url, settings)
            with running(windlass):
                socket = _socket(windlass.data, SERVICES)
                yield Plant(windlass, f"unix:{socket}", folder)


def _configured(data: Path, url: str, settings: Mapping[str, Any]) -> Windlass:
    data.mkdir(mode=0o700)
    windlass = Windlass(data, free_port(), cold=True)
    peers = {name: f"unix:{_socket(data, SERVICES)}" for name in SERVICES}
    for name, targets in (("services", SERVICES), ("gateway", ["gateway"])):
        own = {
            "targets": targets,
            "data_dir": str(data),
            "http": {"port": windlass.port},
            "database": {"url": url.replace("+psycopg", "")},
            "peers": peers,
        }
        windlass.configs[name] = data / f"{name}.yaml"
        windlass.configs[name].write_text(yaml.safe_dump(merged(settings, own)))
    return windlass


def _socket(data: Path, targets: list[str]) -> Path:
    return runtime_dir(data) / f"{socket_name(Settings(targets=targets))}.sock"


@contextmanager
def script(module: str, *arguments: str, python: Path | str = sys.executable) -> Iterator[int]:
    """Runs one of PROGRAMS; answers its pid once its port (the first argument) answers."""
    path = PROGRAMS / f"{module}.py"
    with started([str(python), str(path), *arguments], f"http://127.0.0.1:{arguments[0]}/") as pid:
        yield pid


@contextmanager
def flood(module: str, *arguments: str) -> Iterator[None]:
    """Runs one of PROGRAMS, which ends by itself only if it fails."""
    process = subprocess.Popen([sys.executable, str(PROGRAMS / f"{module}.py"), *arguments])
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"{module} ended by itself")
    finally:
        process.kill()
        process.wait()


@contextmanager
def started(
    command: list[str], url: str, *, seconds: float = 60, log: Path | None = None, **options: Any
) -> Iterator[int]:
    """Runs a command until the end of the block; answers its pid once `url` answers."""
    with (log or Path("/dev/null")).open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **options)
    try:
        _wait(process, url, seconds)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", url: str, seconds: float) -> None:
    transport = httpx.HTTPTransport(retries=int(seconds * 4))
    with httpx.Client(transport=transport, timeout=5) as client:
        try:
            client.get(url)
        except httpx.TransportError as error:
            ended = process.poll()
            raise RuntimeError(f"{process.args!r} does not answer (exit code {ended})") from error
