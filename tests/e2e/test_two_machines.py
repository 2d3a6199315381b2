"""Two machines serve one model; one dies, and requests go on at the other.

Each machine is an agent in a network namespace of its own, which the test makes (root, and
iproute2), and both reach nothing but the server. One is reached by its tunnel alone; the other has
a door, at the address that its operator has pinned.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.support.environments import postgres
from tests.support.environments.certificates import self_signed
from tests.support.factories.toy_model import make_model
from tests.support.processes.windlass import Windlass, free_port, make_single, running
from tests.support.waiting import until

from windlass.client import Windlass as Client

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]
BRIDGE, SERVER = "wl-machines", "10.77.0.1"
START_SECONDS = 240.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def network() -> Iterator[None]:
    """A bridge that the server listens on."""
    ip("link", "add", BRIDGE, "type", "bridge")
    try:
        ip("addr", "add", f"{SERVER}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        yield
    finally:
        ip("link", "del", BRIDGE)


@dataclass
class Machine:
    """An agent in a namespace of its own."""

    name: str
    number: int
    folder: Path
    windlass: Windlass
    listen: str
    has_door: bool = False
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    @property
    def namespace(self) -> str:
        return f"wl-{self.name}"

    @property
    def address(self) -> str:
        return f"10.77.0.{10 + self.number}"

    def start(self, project: str) -> str:
        """Registers it for a project and starts it; answers its cluster's id."""
        ip("netns", "add", self.namespace)
        outside = f"wlm{self.number}"
        peer = ("peer", "name", "eth0", "netns", self.namespace)
        ip("link", "add", outside, "type", "veth", *peer)
        ip("link", "set", outside, "master", BRIDGE, "up")
        ip("-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", self.namespace, "link", "set", device, "up")
        with self.windlass.http() as http:
            policy = {"name": self.name, "executor": "process", "roles": ["engines"]}
            if self.has_door:
                policy["addresses"] = [self.address]
            made = http.post("/v1/clusters", json=policy).raise_for_status().json()
            http.put(f"/v1/clusters/{made['id']}/assignments/{project}", json={})
        key = self.folder / f"{self.name}.key"
        key.write_text(made["registration_key"])
        authority = str(self.windlass.ca)
        listener = f"{self.address}:8444" if self.has_door else ""
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *("ip", "netns", "exec", self.namespace),
                    *(sys.executable, "-m", "windlass_agent", "--executor", "process"),
                    *("--control-plane", f"grpcs://{self.listen}", "--ca-file", authority),
                    *("--data", str(self.folder / self.name)),
                    *("--registration-key-file", str(key)),
                ],
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "HF_HUB_OFFLINE": "1",
                    "SSL_CERT_FILE": authority,
                    "WINDLASS_AGENT_ENGINE_LISTENER": listener,
                },
            )
        return str(made["id"])

    def kill(self) -> None:
        """The machine is gone: every process of it, at once."""
        there = subprocess.run(
            ["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=False
        )
        for pid in {*map(int, there.stdout.split()), *self.engines()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    def engines(self) -> Iterator[int]:
        """Its engines, whose walls give each a network of its own."""
        models = str(self.folder / self.name / "models")
        for process in psutil.process_iter(["cmdline"]):
            if any(models in word for word in process.info["cmdline"] or ()):
                yield process.pid

    def remove(self) -> None:
        self.kill()
        if self.process is not None:
            self.process.wait(20)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False, capture_output=True)


@pytest.fixture(scope="module")
def site(postgres_url: str) -> Iterator[tuple[Windlass, str, Path]]:
    with (
        network(),
        postgres.reachable_folder() as folder,
        postgres.fresh_database(postgres_url) as url,
    ):
        certificate, key = self_signed(folder, SERVER)
        listen = f"{SERVER}:{free_port()}"
        tls = {"certificate": str(certificate), "key": str(key)}
        port = free_port()
        base = {
            "database": {"url": url},
            "agent": {"enabled": False},
            "grpc": {"listen": listen, "tls": tls},
            "http": {
                "host": SERVER,
                "port": port,
                "public_url": f"https://{SERVER}:{port}",
                "tls": tls,
            },
            "inference": {"hold_seconds": START_SECONDS},
        }
        made = make_single(folder / "data", base)
        made.port, made.host, made.ca = port, SERVER, certificate
        with pytest.MonkeyPatch.context() as patch, running(made):
            # What every client here trusts.
            patch.setenv("SSL_CERT_FILE", str(certificate))
            yield made, listen, folder


def ready(windlass: Windlass) -> set[str]:
    """Machines that have said what they run."""
    with windlass.http() as http:
        found = http.get("/v1/clusters").raise_for_status().json()["data"]
    return {one["id"] for one in found if "builtin" in one["capacity"]["engines"]}


def chat(windlass: Windlass, key: str) -> Any:
    client = windlass.openai(key, max_retries=0, timeout=START_SECONDS)
    return client.chat.completions.create(
        model="toy", messages=[{"role": "user", "content": "hi"}], max_tokens=4
    )


async def test_one_of_two_machines_dies_and_requests_go_on(
    site: tuple[Windlass, str, Path],
) -> None:
    windlass, listen, folder = site
    with windlass.http() as http:
        project = http.get("/v1/me").json()["principal"]["project_id"]
    model = await asyncio.to_thread(make_model, folder / "toy")
    with Client(windlass.url, windlass.owner_key) as client:
        client.models.import_folder("toy", model)
    machines = [
        Machine(name, number, folder, windlass, listen, has_door=bool(number))
        for number, name in enumerate(("north", "south"))
    ]
    try:
        clusters = {machine.start(project): machine for machine in machines}
        # Before it no request is held: nothing says that anybody will come.
        await until(lambda: ready(windlass) == set(clusters), START_SECONDS)
        first = await asyncio.to_thread(chat, windlass, windlass.owner_key)
        assert first.usage.completion_tokens > 0
        with windlass.http() as http:
            (engine,) = http.get("/v1/engines").json()["data"]
        dead = clusters.pop(engine["cluster_id"])
        (other,) = clusters
        dead.kill()
        began = time.monotonic()
        # At once, while nobody has noticed: they are held until the other machine answers.
        asked = [asyncio.to_thread(chat, windlass, windlass.owner_key) for _ in range(3)]
        answers = await asyncio.gather(*asked)
        print(f"answered {time.monotonic() - began:.1f} s after the machine was killed")
        assert all(answer.usage.completion_tokens > 0 for answer in answers)
        with windlass.http() as http:
            (engine,) = http.get("/v1/engines").json()["data"]
        assert engine["cluster_id"] == other
        # Each was reached by its own way.
        page = httpx.get(f"{windlass.operations()}/metrics").text
        for kind in ("tunnel", "direct"):
            sample = f'windlass_inference_engine_connections_total{{kind="{kind}"}} '
            assert float(page.split(sample)[1].split()[0]) > 0, kind
    finally:
        for machine in machines:
            machine.remove()
