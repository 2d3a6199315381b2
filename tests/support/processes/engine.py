"""The built-in engine in its own process."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import httpx2
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from tests.support.clients.trust import trusted
from tests.support.processes import warm
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

from windlass.engine_arguments import EngineArguments
from windlass_agent.engines.builtin_engine import BuiltinEngine
from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.engines.port import EngineSpec

# It loads torch, beside whatever else this machine does.
START_SECONDS = 240.0
STOP_SECONDS = 20.0


@dataclass(frozen=True)
class RunningEngine:
    """A started engine."""

    model: Path
    name: str
    endpoint: str
    pid: int
    started_in: float

    def client(self) -> AsyncOpenAI:
        target = parse_endpoint(self.endpoint)
        transport = httpx2.AsyncHTTPTransport(
            verify=trusted(), uds=str(target.uds) if target.uds else None
        )
        return AsyncOpenAI(
            base_url=f"{target.base_url}/v1",
            api_key="none",
            max_retries=0,
            # Also to connect: the library's own five seconds are short for a busy machine.
            timeout=600,
            http_client=DefaultAsyncHttpxClient(transport=transport),
        )

    def http(self) -> httpx.Client:
        target = parse_endpoint(self.endpoint)
        transport = httpx.HTTPTransport(
            verify=trusted(), uds=str(target.uds) if target.uds else None
        )
        return httpx.Client(base_url=target.base_url, transport=transport, timeout=60)

    def metric(self, name: str) -> float:
        with self.http() as http:
            text = http.get("/metrics").text
        found = re.search(rf"^windlass_engine_{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found.group(1)) if found else 0.0


@contextmanager
def running_engine(
    model: Path,
    *,
    endpoint: str | None = None,
    name: str = "toy",
    max_adapters: int = 2,
    max_concurrency: int = 8,
    flags: tuple[str, ...] = (),
    log: Path | None = None,
    cold: bool = False,
) -> Iterator[RunningEngine]:
    """Starts an engine, waits until it is ready, and ends it; `log` takes its stderr.

    A `cold` one imports its libraries.
    """
    address = endpoint or f"http://127.0.0.1:{free_port()}"
    engine = BuiltinEngine() if cold else BuiltinEngine(warm.LIBRARIES.python)
    spec = EngineSpec(
        model_dir=model,
        served_name=name,
        endpoint=address,
        max_adapters=max_adapters,
        arguments=EngineArguments(max_concurrency=max_concurrency),
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    started = time.monotonic()
    with log.open("wb") if log else nullcontext() as stderr:
        process = subprocess.Popen([*engine.command(spec), *flags], env=environment, stderr=stderr)
    try:
        running = RunningEngine(model, name, address, process.pid, 0)
        _wait(running, process)
        yield RunningEngine(model, name, address, process.pid, time.monotonic() - started)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def _wait(engine: RunningEngine, process: "subprocess.Popen[bytes]") -> None:
    with engine.http() as http:

        def healthy() -> bool:
            assert process.poll() is None, f"the engine ended with {process.returncode}"
            with suppress(httpx.TransportError):
                return http.get("/health").status_code == 200
            return False

        wait_until(healthy, "the engine", START_SECONDS, every=0.05)
