"""Clusters end with their users and leave no trace, however the users end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests.cluster.fixtures import require
from tests.cluster.objects.pods import pod, spec
from tests.cluster.provision import lease, supervisor
from tests.cluster.provision import site as sites
from tests.cluster.provision.addons import kubectl
from tests.cluster.provision.images import BUSYBOX
from tests.cluster.provision.site import REPOSITORY, Site, marker
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(300)]
NAME = f"passing-{os.getpid()}"
SYSCTLS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
# Uses a cluster until its standard input ends, and says where it is.
USER = f"""
import sys
from tests.cluster.provision import lease
with lease.use({NAME!r}, bare=True) as site:
    print("in", flush=True)
    sys.stdin.read()
"""


@dataclass
class Trace:
    """Traces of a running cluster on the machine."""

    site: Site
    namespaces: set[str]
    processes: list[psutil.Process]

    @classmethod
    def of(cls, site: Site) -> "Trace":
        """The trace of a cluster that runs."""
        first = psutil.Process(site.pid)
        processes = [first, *first.children(recursive=True)]
        own = namespaces(os.getpid())
        seen = {name for process in processes for name in namespaces(process.pid)}
        return cls(site, seen - own, processes)

    def alive(self) -> list[psutil.Process]:
        """Its processes that still run; a zombie waits for this machine's init alone."""
        return [process for process in self.processes if is_alive(process)]

    def remains(self) -> list[str]:
        """The remains of it."""
        found = [str(process) for process in self.alive()]
        for pid in psutil.pids():
            found += [f"{pid}: {name}" for name in namespaces(pid) & self.namespaces]
        found += [line for line in mounts() if str(self.site.folder) in line]
        groups = (root / self.site.cgroup for root in supervisor.hierarchies())
        paths = [*groups, Path("/sys/class/net") / self.site.link, self.site.folder]
        return found + [str(path) for path in paths if path.exists()]


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def namespaces(pid: int) -> set[str]:
    """The namespaces of a process that may be gone."""
    found = set()
    for kind in ("net", "mnt", "pid"):
        try:
            found.add(str(Path(f"/proc/{pid}/ns/{kind}").readlink()))
        except OSError:
            continue
    return found


def mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


def machine() -> list[str]:
    """The state of the machine that a cluster might change."""
    values = [Path("/proc/sys", name).read_text() for name in SYSCTLS]
    folders = ("/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/var/log/pods")
    return values + [folder for folder in folders if Path(folder).exists()]


@pytest.fixture
def user() -> Iterator["subprocess.Popen[str]"]:
    """A process that uses a cluster of its own."""
    require(own=True)
    process = start()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        lease.end(NAME, force=True)


def start() -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", USER],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "in\n"
    return process


def with_a_pod() -> Trace:
    """The trace of the cluster, which runs a pod."""
    site = sites.read(NAME)
    hand = kubectl(site)
    wait_until(lambda: hand.works("get", "serviceaccount", "default"), "accounts")
    made = pod("default", "sleeper", spec(BUSYBOX, ["sleep", "1000"]))
    hand("apply", "-f-", input=json.dumps(made))
    phase = ("get", "pod", "sleeper", "-o", "jsonpath={.status.phase}")
    wait_until(lambda: hand(*phase) == "Running", "the pod runs")
    return Trace.of(site)


def test_the_last_user_takes_the_cluster_down(user: "subprocess.Popen[str]") -> None:
    before = machine()
    trace = with_a_pod()
    assert len(trace.processes) > 8
    other = start()
    user.communicate()
    assert user.returncode == 0
    assert lease.is_ready(NAME)
    other.communicate()
    assert not trace.remains()
    assert machine() == before


def test_a_killed_user_leaves_no_trace(user: "subprocess.Popen[str]") -> None:
    trace = with_a_pod()
    user.kill()
    wait_until(lambda: not lease.is_alive(NAME), "its supervisor ends")
    assert not trace.remains()


def test_a_killed_supervisor_takes_every_process_along(user: "subprocess.Popen[str]") -> None:
    trace = with_a_pod()
    os.kill(int(marker(NAME, "alive").read_text()), signal.SIGKILL)
    wait_until(lambda: not trace.alive(), "every process ends")
    user.communicate()
    again = start()
    assert sites.read(NAME).pid != trace.site.pid
    again.communicate()
    wait_until(lambda: not trace.remains(), "the next run cleared what was left")


def test_a_kept_cluster_stays_without_users(user: "subprocess.Popen[str]") -> None:
    lease.keep(NAME)
    user.communicate()
    assert lease.is_ready(NAME)
    trace = Trace.of(sites.read(NAME))
    lease.end(NAME)
    assert not trace.remains()
