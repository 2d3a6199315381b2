"""The launcher's residents as real processes: how they start, end, and what is left of them.

Their keepers are scripts that say when the weights are there; `test_host_pod` has the real ones.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.processes.windlass import free_port
from tests.support.waiting import stays, until

from windlass.api.keeper.v1 import keeper_pb2 as pb
from windlass_agent.keeper.host import processes
from windlass_agent.keeper.host.census import Orphans, members
from windlass_agent.keeper.host.order import UnsoundOrder, require_sound_resident
from windlass_agent.keeper.host.residents import PodResidents

KEEPER = """
import http.server, sys
class Started(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/started" else 404)
        self.end_headers()
    def log_message(self, *_):
        pass
port = int(sys.argv[sys.argv.index("--health-port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Started).serve_forever()
"""
SLEEPS = "import time; time.sleep(600)"


def resident(name: str = "a", slot: int = 0, program: str = SLEEPS, **changes: Any) -> pb.Resident:
    port = free_port()
    asked: dict[str, Any] = {
        "workload_id": name, "slot": slot, "digest": "d", "keeper": ["--health-port", str(port)],
        "command": [sys.executable, "-c", program], "environment": {"COLOR": "green"},
        "memory_bytes": 2**40, "disk_bytes": 2**40, "health_port": port,
    }  # fmt: skip
    return pb.Resident(**asked | changes)


class Pod:
    """The residents of a launcher, and the calls that it would make."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.residents = PodResidents(folder, [sys.executable, "-c", KEEPER])
        self.number = 0

    def order(self, *wanted: pb.Resident, kept: tuple[str, ...] = ()) -> None:
        self.number += 1
        self.residents.take(pb.HostOrder(residents=wanted, kept=kept, number=self.number))

    def states(self) -> dict[str, pb.ResidentState]:
        return {one.workload_id: one for one in self.residents._states()}

    def running(self, name: str) -> list[int]:
        return members(name, 0)

    async def runs(self, name: str, count: int = 2) -> list[int]:
        return await until(lambda: self.running(name), holds=lambda found: len(found) == count)

    async def ended(self, name: str) -> pb.ResidentEnd:
        there: Callable[[], Any] = lambda: self.states()[name]  # noqa: E731
        found = await until(there, holds=lambda said: said.HasField("end"))
        end: pb.ResidentEnd = found.end
        return end

    def is_empty(self) -> bool:
        return not (self.folder.exists() and list(self.folder.iterdir()))


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[Pod]:
    made = Pod(tmp_path / "residents")
    yield made
    await made.residents.close()
    assert made.is_empty()


async def test_a_resident_has_a_private_folder_and_goes_with_its_order(pod: Pod) -> None:
    says = "import os, time; print(os.environ['COLOR'], os.getcwd(), flush=True); time.sleep(600)"
    pod.order(resident("a", 0, says), resident("b", 1))
    pids = [*await pod.runs("a"), *await pod.runs("b")]
    groups = [{os.getpgid(one) for one in pids[at : at + 2]} for at in (0, 2)]
    assert [len(one) for one in groups] == [1, 1]
    assert groups[0] != groups[1]
    assert {one.stat().st_mode & 0o777 for one in pod.folder.iterdir()} == {0o700}
    pod.order(resident("b", 1))
    await until(lambda: "a" not in pod.states())
    assert not pod.running("a")
    assert [one.name for one in pod.folder.iterdir()] == ["b"]
    assert len(pod.running("b")) == 2
    assert not [one for one in pids if psutil.pid_exists(one) and one not in pod.running("b")]


@pytest.mark.parametrize("victim", ["keeper", "kept"])
async def test_one_that_loses_a_process_ends_whole_and_is_told_of(pod: Pod, victim: str) -> None:
    words = "import time; print('some words', flush=True); time.sleep(600)"
    pod.order(resident("a", 0, words), resident("b", 1))
    others = await pod.runs("b")
    found = sorted(await pod.runs("a"))
    await until(lambda: "some words" in str(pod.residents._there["a"]._lines))
    leader = os.getpgid(found[0])
    os.kill(next(one for one in found if (one == leader) == (victim == "keeper")), signal.SIGKILL)
    end = await pod.ended("a")
    assert end.code == 137
    assert "some words" in end.last_lines
    assert not pod.running("a")
    assert [one.name for one in pod.folder.iterdir()] == ["b"]
    assert pod.running("b") == others
    # It is told until nobody orders it, and is not started anew.
    pod.order(resident("a"), resident("b", 1))
    assert pod.states()["a"].HasField("end")
    pod.order(resident("b", 1))
    assert "a" not in pod.states()


async def test_what_hears_no_signal_and_what_has_left_the_group_end_too(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "END_SECONDS", 0.3)
    away = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "{SLEEPS}"], start_new_session=True)
time.sleep(600)
"""
    pod.order(resident("a", 0, away))
    pids = await pod.runs("a", 3)
    pod.order()
    await until(lambda: not pod.states())
    assert not pod.running("a")
    assert pod.is_empty()
    assert all(
        not psutil.pid_exists(one) or psutil.Process(one).status() == psutil.STATUS_ZOMBIE
        for one in pids
    )


async def test_another_digest_is_another_process_once_the_first_has_gone(pod: Pod) -> None:
    pod.order(resident())
    before = await pod.runs("a")
    pod.order(resident(digest="e"))
    await until(
        lambda: pod.states().get("a"), holds=lambda one: one is not None and one.digest == "e"
    )
    after = await pod.runs("a")
    assert not set(before) & set(after)
    # An order of the same is none.
    pod.order(resident(digest="e"))
    assert pod.running("a") == after


async def test_one_that_is_kept_goes_on_without_an_order(pod: Pod) -> None:
    pod.order(resident())
    pids = await pod.runs("a")
    pod.order(kept=("a", "unheard-of"))
    await stays(lambda: pod.running("a") == pids)
    assert list(pod.states()) == ["a"]


async def test_one_whose_slot_is_taken_waits_for_it(pod: Pod) -> None:
    pod.order(resident("a", 0))
    await pod.runs("a")
    pod.order(resident("b", 0), kept=("a",))
    assert list(pod.states()) == ["a"]
    pod.order(resident("b", 0))
    await pod.runs("b")
    assert list(pod.states()) == ["b"]


async def test_too_much_memory_or_disk_ends_one_and_no_other(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MEMORY_SECONDS", 0.1)
    monkeypatch.setattr(processes, "DISK_SECONDS", 0.1)
    hungry = "import time; kept = bytearray(200 * 2**20); time.sleep(600)"
    writes = "import time; open('x', 'wb').write(bytes(8 * 2**20)); time.sleep(600)"
    pod.order(
        resident("a", 0, hungry, memory_bytes=150 * 2**20),
        resident("b", 1, writes, disk_bytes=4 * 2**20),
        resident("c", 2, hungry, memory_bytes=400 * 2**20, disk_bytes=4 * 2**20),
    )
    assert (await pod.ended("a")).exceeded == "memory"
    assert (await pod.ended("b")).exceeded == "disk"
    await pod.runs("c")
    assert not pod.states()["c"].HasField("end")


@pytest.mark.parametrize(
    "bad",
    [
        {"command": []},
        {"command": [""]},
        {"command": ["a=b"]},
        {"command": ["-S"]},
        {"command": ["a\0b"]},
        {"command": ["x"] * 1000},
        {"command": ["x" * 10**6]},
        {"slot": 64},
        {"slot": -1},
        {"environment": {"A B": "c"}},
        {"environment": {"A=B": "c"}},
        {"environment": {"-i": "c"}},
        {"memory_bytes": 0},
        {"disk_bytes": -1},
        {"health_port": 0},
        {"health_port": 70_000},
    ],
)
async def test_an_order_out_of_bounds_starts_nothing_and_is_told_of(
    pod: Pod, bad: dict[str, Any]
) -> None:
    asked = resident(**bad)
    with pytest.raises(UnsoundOrder):
        require_sound_resident(asked)
    pod.order(asked)
    assert (await pod.ended("a")).code == 126
    assert not pod.running("a")
    assert pod.is_empty()


@pytest.mark.parametrize("name", ["..", "../a", "a/b", "", "/tmp/x", "-a", "a" * 200])
async def test_an_id_that_is_no_name_of_a_folder_is_passed_over(pod: Pod, name: str) -> None:
    pod.order(resident(name))
    assert not pod.states()
    assert pod.is_empty()


async def test_a_program_that_is_not_there_is_an_end_with_words(pod: Pod) -> None:
    pod.order(resident(command=["/nowhere/program"]))
    end = await pod.ended("a")
    assert end.code == 127
    assert "/nowhere/program" in end.last_lines


async def test_reports_say_which_order_was_taken_and_begin_anew_with_each_call(pod: Pod) -> None:
    reports = pod.residents.reports()
    assert await anext(reports) == pb.HostReport()
    pod.order(resident())
    said = await anext(reports)
    assert (said.order, [one.workload_id for one in said.residents]) == (1, ["a"])
    pod.order()
    assert (await anext(reports)).order == 2
    again = pod.residents.reports()
    assert (await anext(again)).order == 0


async def test_orphans_are_reaped_but_nobodys_who_waits() -> None:
    waited = await asyncio.create_subprocess_exec("true")
    orphan = os.fork()
    if not orphan:
        os._exit(0)
    orphans = Orphans()
    state: Callable[[], str] = lambda: psutil.Process(orphan).status()  # noqa: E731
    await until(state, holds=lambda found: found == psutil.STATUS_ZOMBIE)
    for _ in range(2):
        orphans.reap({waited.pid})
    assert not psutil.pid_exists(orphan)
    assert await waited.wait() == 0
