"""The process that owns a cluster: starts it, ends it when nobody uses it, leaves no trace.

Users hold a shared lock of a file, which the kernel frees when they die, even by kill -9. This
process waits for that lock alone. If it dies itself, the kernel ends the cluster's process 1 and
with it every other; what then remains, control groups and a folder, the next start removes.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.provision import addons, control_plane, network, node
from tests.cluster.provision.identities import write_identities
from tests.cluster.provision.site import (
    REPOSITORY,
    Site,
    folder_of,
    logs_folder,
    marker,
    running_folder,
)
from tests.support.environments.locks import FileLock

CONTROL_GROUPS = Path("/sys/fs/cgroup")
# With --kill-child, process 1 dies with `unshare`, and that by --pdeathsig with this process.
NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)


def main(name: str, *options: str) -> None:
    """Runs the cluster of a name until SIGTERM, or until it is neither used nor kept."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    alive = FileLock(marker(name, "alive"))
    alive.take()
    marker(name, "alive").write_text(str(os.getpid()))
    sweep()
    start = FileLock(marker(name, "start"))
    with cluster(name, bare="--bare" in options) as namespaces:
        signal.signal(signal.SIGCHLD, lambda *_: _exit_with(namespaces))
        (folder_of(name) / "ready").touch()
        wait_until_unused(name, start)


@contextlib.contextmanager
def cluster(name: str, *, bare: bool) -> Iterator[subprocess.Popen[str]]:
    """Runs a whole cluster for the block."""
    folder = folder_of(name)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "log").mkdir(parents=True)
    command = [*NAMESPACES, sys.executable, "-m", "tests.cluster.provision.init", name]
    with (folder / "log" / "init.log").open("ab") as log:
        namespaces = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
        )
    pid = site = None
    try:
        pid = process_one(namespaces)
        site = network.connect(name, pid)
        make_control_groups(site)
        write_identities(site)
        control_plane.configure(site)
        node.configure(site)
        site.write()
        assert namespaces.stdin
        namespaces.stdin.close()
        addons.start(site, bare=bare)
        yield namespaces
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        end(namespaces, pid)
        if site is not None:
            remove_control_groups(site.cgroup)
        keep_logs(name)
        shutil.rmtree(folder, ignore_errors=True)


def end(namespaces: subprocess.Popen[str], pid: int | None) -> None:
    """Kills process 1 of a cluster; `unshare` takes its exit status, then ends by itself."""
    if pid is None:
        namespaces.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    namespaces.wait()


def process_one(namespaces: subprocess.Popen[str]) -> int:
    """The pid, as this machine counts, of process 1 of the cluster."""
    children = Path(f"/proc/{namespaces.pid}/task/{namespaces.pid}/children")
    while namespaces.poll() is None:
        if pids := children.read_text().split():
            return int(pids[0])
        time.sleep(0.01)
    raise RuntimeError("no namespaces: see init.log")


def wait_until_unused(name: str, start: FileLock) -> None:
    """Returns, with the lock of `start` held, once nobody uses the cluster or keeps it."""
    users = FileLock(marker(name, "users"))
    while True:
        users.take()
        if not marker(name, "keep").exists() and start.try_take():
            return
        # Whoever holds `start` is about to use it.
        users.release()
        time.sleep(0.5)


def make_control_groups(site: Site) -> None:
    """Makes the pods' control group in every hierarchy that there is."""
    remove_control_groups(site.cgroup)
    for hierarchy in hierarchies():
        (hierarchy / site.cgroup).mkdir(exist_ok=True)


def remove_control_groups(name: str) -> None:
    """Removes a control group with everything below it; its processes are dead."""
    for hierarchy in hierarchies():
        top = hierarchy / name
        for _ in range(50):
            folders = [Path(path) for path, _, _ in os.walk(top, topdown=False)]
            with contextlib.suppress(OSError):
                for folder in folders:
                    folder.rmdir()
            if not top.exists():
                break
            time.sleep(0.1)


def hierarchies() -> list[Path]:
    """The roots of control groups: one, or with version 1 one for each controller."""
    if (CONTROL_GROUPS / "cgroup.controllers").exists():
        return [CONTROL_GROUPS]
    # systemd's tools leave folders there for controllers that this kernel lacks.
    return [path for path in CONTROL_GROUPS.iterdir() if path.is_mount() and not path.is_symlink()]


def sweep() -> None:
    """Removes what clusters left whose supervisor was killed."""
    groups = {path.name for root in hierarchies() for path in root.glob("windlass-*")}
    for group in groups:
        if not Path(f"/sys/class/net/windlass{group.removeprefix('windlass-')}").exists():
            remove_control_groups(group)
    running_folder().mkdir(parents=True, exist_ok=True)
    for folder in running_folder().iterdir():
        lock = FileLock(marker(folder.name, "alive"))
        if lock.try_take():
            shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def keep_logs(name: str) -> None:
    """Keeps the last run's logs, but for the pods'."""
    last = logs_folder(name)
    shutil.rmtree(last, ignore_errors=True)
    last.mkdir(parents=True)
    for log in (folder_of(name) / "log").glob("*.log"):
        log.rename(last / log.name)


def _exit_with(namespaces: subprocess.Popen[str]) -> None:
    if namespaces.poll() is not None:
        raise SystemExit("process 1 of the cluster died")


if __name__ == "__main__":
    main(*sys.argv[1:])
