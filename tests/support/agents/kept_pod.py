"""An engine and its keeper as processes of this machine, and their agent's side in this one.

Stands for a pod without a cluster: its containers are processes, and its network is this
machine's. `tests/cluster/engines` has the real ones.
"""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
from tests.support.agents.engine_machine import workload
from tests.support.agents.file_store import Store, files
from tests.support.processes.windlass import free_port
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass.api.keeper.v1.keeper_pb2_grpc import add_KeeperServiceServicer_to_server
from windlass.kubernetes.names import engine_name
from windlass.tunnel.authority import Authority
from windlass_agent.engines.builtin_engine import BuiltinEngine
from windlass_agent.engines.port import EngineSpec
from windlass_agent.executors.kubernetes.engines.doors import Doors
from windlass_agent.executors.kubernetes.engines.keepers import Keepers, KeeperServicer
from windlass_agent.executors.kubernetes.observe.snapshot import Key, PodSnapshot
from windlass_agent.keeper.health import DRAINED, LOAD, READY, STARTED

WORKLOAD = "eng-1"
TOKEN = "of-the-pod"
POD = PodSnapshot(
    key=Key(WORKLOAD, 0), job_id="", rank=0, namespace="team-a", name="eng-1-x", uid="uid-1",
    service_account="windlass-runner", node="n", phase="Running", reason="", message="",
    deleting=False, scheduled=None, disruption=None, runner=None, blocked=None,
)  # fmt: skip
SECONDS = 120.0
# The keeper with other constants, by the module of each.
_CHANGED = """
import importlib, json, sys
for name, value in json.loads(sys.argv.pop(1)).items():
    module, _, constant = name.rpartition(".")
    setattr(importlib.import_module(module), constant, value)
from windlass_agent.keeper.__main__ import main
sys.exit(main())
"""


class OnePod:
    """Stands for the cluster's review of tokens."""

    async def find(self, token: str) -> PodSnapshot | None:
        return POD if token == TOKEN else None


class KeptPod:
    """The stage. `order` is what the engine should be."""

    def __init__(self, folder: Path, store: Store):
        self.folder = folder
        self.store = store
        self.authority = Authority.make()
        self.agent_port, self.door, self.health, self.engine_port = (free_port() for _ in range(4))
        self.endpoint = f"http://127.0.0.1:{self.engine_port}"
        # For two adapters of the store.
        self.adapter_bytes = sum(
            file.bytes for one in ("mv-a", "mv-b") for file in files(store, one)
        )
        self.order: pb.EngineWorkload | None = workload(store, "mv-a").engine
        self.keepers = Keepers(lambda: None)
        self.doors = Doors(self.authority, lambda _: "127.0.0.1", port=lambda _: self.door)
        self.server: Any = None
        self.keeper: subprocess.Popen[bytes] | None = None
        self.engine: subprocess.Popen[bytes] | None = None
        (folder / "ca.crt").write_bytes(self.authority.certificate)
        (folder / "token").write_text(TOKEN)

    def want(self, *adapters: str) -> None:
        """Changes the adapters that should be loaded."""
        self.order = workload(self.store, *adapters).engine
        self.keepers.order()

    async def start_agent(self) -> None:
        """Serves keepers."""
        certificate, key = self.authority.issue("127.0.0.1")
        self.server = grpc.aio.server()
        servicer = KeeperServicer(OnePod(), self.keepers, self.authority, lambda _: self.order)
        add_KeeperServiceServicer_to_server(servicer, self.server)
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        self.server.add_secure_port(f"127.0.0.1:{self.agent_port}", credentials)
        await self.server.start()

    def start_keeper(self, **constants: float) -> None:
        """Starts the keeper's process, with other values of constants of `engine_keeper`."""
        options = {
            "--agent": f"127.0.0.1:{self.agent_port}",
            "--agent-ca": self.folder / "ca.crt",
            "--token-file": self.folder / "token",
            "--engine": "builtin",
            "--endpoint": self.endpoint,
            "--weights": self.folder / "weights",
            "--adapter-bytes": self.adapter_bytes,
            "--scratch": self.folder / "scratch",
            "--port": self.door,
            "--health-port": self.health,
        }
        words = ["--tell-load", *(str(word) for pair in options.items() for word in pair)]
        named = {f"windlass_agent.keeper.engine_keeper.{k}": v for k, v in constants.items()}
        program = ["-c", _CHANGED, json.dumps(named)] if named else ["-m", "windlass_agent.keeper"]
        self.keeper = self._start("windlass_agent.keeper", [*program, *words])

    def start_engine(self) -> None:
        """Starts the engine's process, as its container does."""
        spec = EngineSpec(
            model_dir=self.folder / "weights" / "models" / "mv-toy",
            served_name="toy",
            endpoint=self.endpoint,
            max_adapters=2,
            cpus=1,
        )
        command = BuiltinEngine(Path(sys.executable)).command(spec)
        self.engine = self._start(command[2], command[1:])

    def _start(self, name: str, words: Sequence[str]) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-P", *words]
            return subprocess.Popen(command, stdout=log, stderr=log)

    def restart_keeper(self, **constants: float) -> None:
        """Ends the keeper by kill -9, and starts another."""
        assert self.keeper
        self.keeper.kill()
        self.keeper.wait()
        self.start_keeper(**constants)

    def kill_engine(self) -> None:
        """Ends the engine by kill -9."""
        assert self.engine
        self.engine.kill()
        self.engine.wait()

    def state(self) -> keeper_pb2.EngineState:
        """The keeper's last word."""
        return self.keepers.state(POD.uid) or keeper_pb2.EngineState()

    async def reaches(self, phase: int, *, loaded: Sequence[str] = (), reason: str = "") -> None:
        """Waits for the keeper to say so."""

        def there() -> bool:
            state = self.state()
            good = sorted(one.version_id for one in state.adapters if not one.error)
            return (state.phase, good) == (phase, sorted(loaded)) and reason in state.reason

        try:
            await until(there, SECONDS)
        except AssertionError:
            log = (self.folder / "windlass_agent.keeper.log").read_text()[-3000:]
            raise AssertionError(f"stands at {self.state()}\n{log}") from None

    def probe(self, path: str, *, seconds: float = 5.0) -> int:
        """The status that the kubelet gets; 0 without an answer."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.health}{path}", timeout=seconds).status_code
        except httpx.TransportError:
            return 0

    def told(self) -> str:
        """What pods of a picker may read; empty while nothing is known."""
        answer = httpx.get(f"http://127.0.0.1:{self.health}{LOAD}", timeout=5)
        return answer.text if answer.status_code == 200 else ""

    def client(self, **options: Any) -> httpx.AsyncClient:
        """A client of the door, with the agent's certificate unless `verify` says otherwise."""
        chosen: dict[str, Any] = {"verify": self.doors.tls, "timeout": 60} | options
        return httpx.AsyncClient(base_url=f"https://127.0.0.1:{self.door}", **chosen)

    async def say(self, model: str, **fields: Any) -> httpx.Response:
        """A completion through the door."""
        body = {"model": model, "prompt": "the quick", "max_tokens": 8, "temperature": 0} | fields
        async with self.client() as client:
            return await client.post("/v1/completions", json=body, extensions=NAMED)

    async def close(self) -> None:
        """Ends all of it."""
        for process in (self.engine, self.keeper):
            if process is not None:
                process.send_signal(signal.SIGTERM)
                await asyncio.to_thread(process.wait, 30)
        await self.server.stop(None)


# The door's certificate is the workload's, wherever it listens.
NAMED = {"sni_hostname": engine_name(WORKLOAD)}


@asynccontextmanager
async def kept_pod(folder: Path, store: Store) -> AsyncIterator[KeptPod]:
    """A pod that serves with the adapter `mv-a`."""
    pod = KeptPod(folder, store)
    await pod.start_agent()
    try:
        pod.start_keeper()
        await until(lambda: pod.probe(STARTED) == 200, SECONDS, every=0.1)
        pod.start_engine()
        await pod.reaches(pb.PHASE_RUNNING, loaded=["mv-a"])
        yield pod
    finally:
        await pod.close()


__all__ = ["DRAINED", "NAMED", "READY", "KeptPod", "kept_pod"]
