"""A model with an engine on each of two machines, behind tunnels; every process may be killed."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
from tests.faults.lone_agent import LoneAgent
from tests.faults.serving.clients import TOKENS, OpenRequests, Request
from tests.faults.site import ENGINE, Site, cmdline, frozen, is_wall
from tests.support.processes.cut_line import CutLine, cut_line
from tests.support.processes.split import socket_of, two_processes
from tests.support.processes.windlass import running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.targets import MODULES

MODEL = "toy"
GATEWAY = ("gateway",)
SERVER = tuple(name for name in MODULES if name not in (*GATEWAY, "agent"))
# What the keeper asks of an engine before anybody else.
WARMING = 1
SMALL = 20
# Process, user and group at the other end of a socket.
PEER = struct.Struct("3i")
RUNNING_SECONDS, STILL_SECONDS = 0.01, 0.09


class Sums(NamedTuple):
    """Requests and tokens."""

    requests: int
    prompt: int
    completion: int


@dataclass
class ServedSite:
    """A gateway, a server, and two machines with an engine each, of which one is far."""

    site: Site
    near: LoneAgent
    far: LoneAgent
    line: CutLine

    @property
    def agents(self) -> tuple[LoneAgent, LoneAgent]:
        return self.near, self.far

    def client(self) -> Any:
        return self.site.windlass.openai(max_retries=0, timeout=120)

    def say(self, tokens: int = 1) -> Request:
        """A small request, which has to succeed."""
        answer = self.client().completions.create(
            model=MODEL, prompt="the", max_tokens=tokens, extra_body={"ignore_eos": True}
        )
        return Request(None, MODEL, streams=False, tokens=answer.usage.completion_tokens)

    def until_both_answer(self) -> list[Request]:
        """Small requests, each of which succeeds, until both engines have had some; these.

        Several at once, since the nearer engine gets what comes alone.
        """
        before, said = self.counted(), list[Request]()

        def had() -> bool:
            said.extend(pool.map(self.say, [SMALL] * 4))
            now = self.counted()
            return now.keys() == before.keys() and all(now[one] > before[one] for one in now)

        with ThreadPoolExecutor(4) as pool:
            wait_until(had, "answers of both engines")
        return said

    def engine(self, agent: LoneAgent) -> psutil.Process | None:
        """The one engine of a machine, once it runs."""
        found = self.site.processes(ENGINE, f"/{agent.name}/models/")
        found = [one for one in found if not is_wall(one)]
        assert len(found) <= 1, [cmdline(one) for one in found]
        return found[0] if found else None

    def engines(self) -> dict[str, psutil.Process]:
        """The engine of each machine, once there are both and both answer."""

        def both() -> dict[str, psutil.Process] | None:
            if self.site.get(f"/servings/{MODEL}")["ready_replicas"] != 2:
                return None
            found = {one.name: process for one in self.agents if (process := self.engine(one))}
            return found if len(found) == 2 else None

        return wait_until(both, "an engine on each machine")

    @contextmanager
    def held(self) -> Iterator[OpenRequests]:
        """Holds a stream that has begun and a request that is answered whole at each engine.

        The engines stand still during the block, and what is open comes to its end afterwards.
        """
        engines = list(self.engines().values())
        running, made = "sequences_running", OpenRequests()
        answering = [behind(socket_of_engine(one)) for one in engines]
        with ExitStack() as still:
            with slow(answering):
                for _ in engines:
                    made.open(Request(self.client(), MODEL, streams=True))
                for _ in engines:
                    made.open(Request(self.client(), MODEL, streams=False))
                wait_until(lambda: [gauge(one, running) for one in engines] == [2, 2], every=0.05)
            for one in answering:
                still.enter_context(frozen(one))
            assert made.under_way == 4, "each takes longer than to open them"
            yield made

    def billed(self) -> Sums:
        """Usage that the project has been told of."""
        found = self.site.get("/usage", start_time=int(time.time()) - 86400, limit=31)
        rows = [row for bucket in found["data"] for row in bucket["results"]]
        names = ("num_model_requests", "input_tokens", "output_tokens")
        return Sums(*(sum(row[name] for row in rows) for name in names))

    def counted(self) -> dict[int, int]:
        """Tokens that each living engine has generated for others than its keeper."""
        found = {one.pid: one for one in self.engines().values()}
        name = "generated_tokens_total"
        return {pid: int(gauge(one, name)) - WARMING for pid, one in found.items()}


@dataclass
class Books:
    """What has been billed, and counted by engines, since a moment."""

    served: ServedSite
    billed: Sums
    counted: dict[int, int]

    @classmethod
    def of(cls, served: ServedSite) -> "Books":
        return cls(served, served.billed(), served.counted())

    def assert_billed(self, requests: list[Request]) -> int:
        """These, each once, with the tokens that its client was told of; and nothing else.

        Returns the tokens that living engines have generated beside.
        """
        tokens = sum(one.tokens for one in requests)
        billed = self.until_billed(requests)
        assert (billed.requests, billed.completion) == (len(requests), tokens), billed
        now = self.served.counted()
        return sum(now.values()) - sum(self.counted.get(pid, 0) for pid in now) - tokens

    def until_billed(self, requests: list[Request]) -> Sums:
        """What has been billed since, once it is of no fewer requests than these."""

        def all_told() -> Sums | None:
            now = self.served.billed()
            since = Sums(*(one - before for one, before in zip(now, self.billed, strict=True)))
            return since if since.requests >= len(requests) else None

        return wait_until(all_told, "usage", 60)


def gauge(engine: psutil.Process, name: str) -> float:
    """A number of an engine's own."""
    transport = httpx.HTTPTransport(uds=socket_of_engine(engine))
    with httpx.Client(transport=transport) as http:
        lines = http.get("http://engine/metrics").text.splitlines()
    named = f"windlass_engine_{name} "
    return next(float(line.split()[-1]) for line in lines if line.startswith(named))


def socket_of_engine(engine: psutil.Process) -> str:
    (path,) = (word for word in cmdline(engine) if word.startswith("--uds="))
    return path.removeprefix("--uds=")


def behind(path: str) -> psutil.Process:
    """The process that listens on a socket: where it was forked, an engine is its stand-in."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    return psutil.Process(PEER.unpack(credentials)[0])


@contextmanager
def slow(engines: list[psutil.Process]) -> Iterator[None]:
    """Lets engines run for a small part of the time, which takes no processor's."""
    enough = threading.Event()

    def hold_up() -> None:
        while not enough.is_set():
            with ExitStack() as still:
                for one in engines:
                    still.enter_context(frozen(one))
                enough.wait(STILL_SECONDS)
            enough.wait(RUNNING_SECONDS)

    thread = threading.Thread(target=hold_up)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


@contextmanager
def served_site(folder: Path, url: str, model: Path) -> Iterator[ServedSite]:
    """Runs it until the end of the block, and asserts that no process is left."""
    # Nobody can check a key while the server is away.
    settings = {"auth": {"outage_grace_seconds": 120}}
    halves = {"server": SERVER, "gateway": GATEWAY}
    made = two_processes(folder / "data", url, halves, settings)
    with ExitStack() as stack:
        stack.enter_context(running(made))
        site = Site(made)
        line = stack.enter_context(cut_line(socket_of(made, SERVER)))
        slots = {"WINDLASS_AGENT_ENGINE_SLOTS": "1"}
        near = LoneAgent(site, "near", f"unix:{socket_of(made, SERVER)}", environment=slots)
        far = LoneAgent(site, "far", line.address, environment=slots)
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder(MODEL, model)
        for agent in (near, far):
            agent.start()
            stack.callback(agent.stop)
        site.http.put(f"/v1/servings/{MODEL}", json={"min_replicas": 2}).raise_for_status()
        served = ServedSite(site, near, far, line)
        served.engines()
        yield served
    site.assert_no_process()


__all__ = ["MODEL", "TOKENS", "Books", "ServedSite", "served_site"]
