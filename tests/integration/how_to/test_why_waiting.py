"""The how-to on waiting, run as it is printed, with agents that say what Kueue would."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.support.agents.kueue_agent import KueueAgent
from tests.support.factories.feather import make_feather
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import PATIENCE

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.core.app import runtime_dir

PAGE = "how-to/why-is-my-job-waiting.md"
WORDS = (
    "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in "
    "flavor h100, 2 more needed"
)
CHAT = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


@dataclass
class Reader:
    """Somebody at a shell who may use two clusters, and those clusters' agents."""

    shell: Shell
    agents: dict[str, KueueAgent]

    async def data(self, *words: str) -> str:
        return await asyncio.to_thread(self.shell.data, *words)

    async def follow(self, said: str = "", *, after: str = "", until: str = "") -> str:
        environment = self.shell.environment | self.shell.owner
        environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
        script = pages.script(PAGE, after=after, until=until)
        commands = f"set +x\nexec 2>&1\n{said}\n{script}"
        return await asyncio.to_thread(pages.run, commands, environment, self.shell.home)


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[Reader]:
    settings = {"agent": {"enabled": False}}
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(
            stack.enter_context,
            # Agents of ours come by the socket of the one process.
            running(make_single(tmp_path / "data", settings), divisible=False),
        )
        shell = Shell(server, tmp_path)
        channel = await stack.enter_async_context(
            grpc.aio.insecure_channel(f"unix:{runtime_dir(server.data) / 'windlass.sock'}")
        )
        reader = Reader(shell, {})
        for name, gpus, used, pending in (("east", 8, 6, 1), ("west", 2, 0, 0)):
            agent = await enrolled(channel, await reader.data("clusters", "register", name, "-q"))
            stack.push_async_callback(agent.close)
            await agent.offers("team-a", gpus=gpus, used=used, pending=pending)
            reader.agents[name] = agent
        yield reader


async def enrolled(channel: grpc.aio.Channel, key: str) -> KueueAgent:
    stub: Any = rpc.ClustersAgentServiceStub(channel)
    found = await stub.Enroll(pb.EnrollRequest(registration_key=key))
    plane: Any = SimpleNamespace(channel=channel)
    capacity = pb.Capacity(backends=["trl"])
    agent = KueueAgent(plane, found.cluster_id, found.credential, capacity)
    await agent.connect()
    return agent


async def prepare(reader: Reader, folder: Path) -> None:
    """Makes what the page takes for granted: a model, a file, and a project with two clusters."""
    model = make_feather(folder / "llama-3.2-1b")
    (folder / "train.jsonl").write_text((json.dumps(CHAT) + "\n") * 12)
    await reader.data("models", "import", str(model))
    me = json.loads(await reader.data("auth", "status", "-o", "json"))
    project = me["project"]
    # East is not ready before all else is known: what is known is a look of up to a second ago.
    reader.agents["east"].obedient = False
    for name in reader.agents:
        await reader.data("clusters", "assign", project, name, "--queue", "team-a")


async def shown(reader: Reader, said: str, word: str) -> str:
    """The output of asking as the page says, once it has the word."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await reader.follow(said, after="Ask", until="What it says, and what helps")
            if word in found:
                return found


async def test_the_page_on_waiting_is_true(reader: Reader, tmp_path: Path) -> None:
    await prepare(reader, tmp_path)
    east = reader.agents["east"]
    explained, refused = pages.blocks(PAGE, "text")
    await reader.follow(until="Ask")
    job = await reader.data("jobs", "list", "-o", "name")
    said = f"job={job}"
    await shown(reader, said, "Its queue team-a holds 2 GPUs at most")
    await east.obey()
    await east.wants(job)
    await east.says(job, "PENDING", queue="team-a", queue_position=2, message=WORDS)
    assert await shown(reader, said, "place 2") == explained
    for looked in (("get", job), ("list", "-o", "wide")):
        assert WORDS in " ".join((await reader.data("jobs", *looked)).split())
    assert "at place 2: " in await reader.data("jobs", "list", "-o", "wide")
    assert WORDS not in await reader.data("jobs", "list")
    answer = await reader.follow(said, after="What never waits", until="Over the API")
    assert answer.startswith(f"{refused.rstrip()} (exceeds_quota, param windlass.resources")
    assert answer.endswith("refused\n")
    why = json.loads(await reader.follow(said, after="Over the API"))
    assert why["summary"] == explained.splitlines()[0]
    assert [one["name"] for one in why["verdicts"] if one["chosen"]] == ["east"]
    await reader.data("jobs", "cancel", job, "--yes")
    await east.wants(job, "DELETED")
    await east.says(job, "STOPPED")
    # A sentence is all: where it was is no reason for anything any more.
    ended = "It was cancelled. The job was cancelled while it waited.\n"
    assert await shown(reader, said, "was cancelled") == ended
    assert json.loads(await reader.data("jobs", "explain", job, "-o", "json"))["verdicts"]
