"""Memory of an agent that keeps 50 engines on its machine, beside what it has before the first.

`windlass-agent` as it is installed, with its tunnel, confinement and measurements; the engines are
processes that it takes for vLLM, each of a model of its own, and that answer as vLLM does without
computing anything. Only the agent's own process counts. The floor is the same one without engines.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import httpx
from tests.bench import machine
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.plant import NO_AGENT, PROGRAMS, Plant, single
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

ENGINES = 50
BOUND_MIB, MIB = 120, 2**20
# Twice the time between two measurements of each engine.
SETTLE_SECONDS = 20
START_SECONDS = 300
MACHINE = {"name": "bench", "executor": "process", "shared": True, "roles": ["engines"]}
VERSION = "0.32.0"


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    return await asyncio.to_thread(_measure, ENGINES // 10 if options.quick else ENGINES)


def _measure(engines: int) -> list[Figure]:
    most = {"inference": {"max_engines": engines}, "quotas": {"engines": engines}}
    with single({**NO_AGENT, **most}) as plant, _agent(plant, engines) as pid:
        time.sleep(SETTLE_SECONDS / 2)
        before = machine.memory_bytes(pid, "VmRSS")
        names = [plant.import_model(f"bench-{number}") for number in range(engines)]
        with plant.windlass.http() as http:
            for name in names:
                body = {"engine": "vllm", "min_replicas": 1}
                http.put(f"/v1/servings/{name}", json=body).raise_for_status()
            wait_until(lambda: _ready(http, names), f"{engines} engines answer", START_SECONDS)
        time.sleep(SETTLE_SECONDS)
        after, peak = (machine.memory_bytes(pid, field) for field in ("VmRSS", "VmHWM"))
    name = f"agent_memory_{engines}_engines"
    return [
        at_most(name, after / MIB, "MiB", BOUND_MIB).beside("without engines", before / MIB),
        plain(f"{name}_peak", peak / MIB, "MiB"),
    ]


def _ready(http: httpx.Client, names: list[str]) -> bool:
    return all(http.get(f"/v1/servings/{name}").json()["ready_replicas"] for name in names)


@contextlib.contextmanager
def _agent(plant: Plant, engines: int) -> Iterator[int]:
    """Runs `windlass-agent`, which ends its engines with itself; answers its pid once it works."""
    with plant.windlass.http() as http:
        registered = http.post("/v1/clusters", json=MACHINE).raise_for_status().json()
    key, port = plant.folder / "registration.key", free_port()
    key.write_text(registered["registration_key"])
    command = [
        *(sys.executable, "-m", "windlass_agent", "--stop-jobs-on-exit"),
        *("--control-plane", plant.grpc_address, "--registration-key-file", str(key)),
        *("--data", str(plant.folder / "agent"), "--engine-slots", str(engines)),
        *("--vllm-python", str(_stub_vllm(plant.folder / "vllm"))),
    ]
    environment = {
        **os.environ,
        "WINDLASS_AGENT_OPERATIONS_LISTEN": f"127.0.0.1:{port}",
        "WINDLASS_AGENT_LOG_LEVEL": "WARNING",
    }
    process = subprocess.Popen(command, env=environment)

    def works() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the agent ended with {process.returncode}")
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}/readyz").is_success
        return False

    try:
        wait_until(works, "the agent")
        yield process.pid
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def _stub_vllm(home: Path) -> Path:
    """Makes an environment with a package `vllm` that is a stub; answers its interpreter."""
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    entrypoint = packages / "vllm" / "entrypoints" / "openai"
    entrypoint.mkdir(parents=True)
    shutil.copy(PROGRAMS / "stub_vllm.py", entrypoint / "api_server.py")
    metadata = packages / f"vllm-{VERSION}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n")
    return home / "bin" / "python"
