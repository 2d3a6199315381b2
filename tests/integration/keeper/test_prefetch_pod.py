"""The program of a prefetch's pod as a process, and its agent's side in this one."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from tests.support.agents.file_store import Store, file_store, files
from tests.support.agents.kept_pod import POD, TOKEN, OnePod
from tests.support.processes.windlass import free_port
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1.keeper_pb2_grpc import add_KeeperServiceServicer_to_server
from windlass.tunnel.authority import Authority
from windlass_agent.executors.kubernetes.engines.keepers import Keepers, KeeperServicer

SECONDS = 60.0


@asynccontextmanager
async def running(folder: Path, orders: list[pb.EngineWorkload]) -> AsyncIterator[Keepers]:
    """The words of a pod that runs for the block, whose order is the last of these."""
    authority, port = Authority.make(), free_port()
    certificate, key = authority.issue("127.0.0.1")
    keepers = Keepers(lambda: None)
    server = grpc.aio.server()
    servicer = KeeperServicer(OnePod(), keepers, authority, lambda _: orders[-1])
    add_KeeperServiceServicer_to_server(servicer, server)
    credentials = grpc.ssl_server_credentials([(key, certificate)])
    server.add_secure_port(f"127.0.0.1:{port}", credentials)
    await server.start()
    (folder / "ca.crt").write_bytes(authority.certificate)
    (folder / "token").write_text(TOKEN)
    (folder / "store").mkdir(exist_ok=True)
    options = {
        "--agent": f"127.0.0.1:{port}",
        "--agent-ca": folder / "ca.crt",
        "--token-file": folder / "token",
        "--store": folder / "store",
        "--store-bytes": 0,
    }
    words = [str(word) for pair in options.items() for word in pair]
    command = [sys.executable, "-P", "-m", "windlass_agent.keeper.prefetch", *words]
    process = subprocess.Popen(command)
    try:
        yield keepers
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        await server.stop(None)


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[Store]:
    for version in ("mv-a", "mv-draft"):
        folder = tmp_path / "origin" / version
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(version))
    with file_store(tmp_path / "origin") as made:
        yield made


async def test_it_brings_the_weights_holds_them_and_ends(origin: Store, tmp_path: Path) -> None:
    good, bad = (
        pb.EngineWorkload(
            model_version_id="mv-a",
            model_files=files(origin, "mv-a"),
            draft_version_id="mv-draft",
            draft_files=files(origin, "mv-draft"),
        )
        for _ in range(2)
    )
    bad.draft_files[0].url += "-none"
    orders = [bad]
    async with running(tmp_path, orders) as keepers:

        def phase() -> int:
            state = keepers.state(POD.uid)
            return state.phase if state is not None else 0

        await until(lambda: phase() == pb.PHASE_FAILED, SECONDS)
        state = keepers.state(POD.uid)
        assert state is not None
        assert "HTTP 404" in state.message
        # With URLs that are good, it goes on by itself.
        orders.append(good)
        keepers.order()
        await until(lambda: phase() == pb.PHASE_RUNNING, SECONDS)
        for version in ("mv-a", "mv-draft"):
            found = tmp_path / "store" / version / "config.json"
            assert json.loads(found.read_text()) == version
            assert list((tmp_path / "store" / ".marks").glob(f"{version}.*"))
    assert not list((tmp_path / "store" / ".marks").iterdir())
