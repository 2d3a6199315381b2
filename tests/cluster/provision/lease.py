"""Uses of running clusters: many processes share one, and the last to leave ends it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.cluster.provision import site as sites
from tests.cluster.provision.site import REPOSITORY, Site, logs_folder, marker
from tests.support.environments.locks import FileLock, locked

END_SECONDS = 60
SUPERVISOR = "tests.cluster.provision.supervisor"


class StartFailed(RuntimeError):
    """A cluster did not start; the message ends with the end of its supervisor's log."""


@contextlib.contextmanager
def use(name: str, *, bare: bool = False) -> Iterator[Site]:
    """A running cluster for the block, started if need be; a bare one is without add-ons."""
    users = FileLock(marker(name, "users"))
    try:
        with locked(marker(name, "start")):
            if not is_ready(name):
                launch(name, bare=bare)
            users.share()
        yield sites.read(name)
    finally:
        last = users.try_take()
        users.close()
        if last:
            wait_until_gone(name)


def keep(name: str, *, bare: bool = False) -> Site:
    """Starts a cluster that stays until `end`, or makes a running one stay."""
    marker(name, "keep").parent.mkdir(parents=True, exist_ok=True)
    marker(name, "keep").touch()
    with use(name, bare=bare) as site:
        return site


class InUse(RuntimeError):
    """Somebody uses the cluster that was to be ended."""


def end(name: str, *, force: bool = False) -> None:
    """Ends a cluster; `InUse` if tests use it, unless by force."""
    if not force and is_used(name):
        raise InUse(f"{name} is in use; `down --force` ends it all the same")
    marker(name, "keep").unlink(missing_ok=True)
    with locked(marker(name, "start")):
        if is_alive(name):
            os.kill(int(marker(name, "alive").read_text()), signal.SIGTERM)
            if not wait_until_gone(name):
                raise RuntimeError(f"{name} did not end within {END_SECONDS} s")


def launch(name: str, *, bare: bool = False) -> None:
    """Starts a cluster; returns once it is ready."""
    (sites.folder_of(name) / "ready").unlink(missing_ok=True)
    log_path = logs_folder(name).with_suffix(".log")
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("wb") as log:
        supervisor = subprocess.Popen(
            [
                sys.executable,
                "-m",
                SUPERVISOR,
                name,
                *(["--bare"] if bare else []),
            ],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while not is_ready(name):
        if supervisor.poll() is not None:
            tail = "".join(log_path.read_text().splitlines(keepends=True)[-10:])
            raise StartFailed(f"{name} did not start; logs: {logs_folder(name)}\n{tail}")
        time.sleep(0.1)


def is_used(name: str) -> bool:
    """True where anybody uses a cluster; its supervisor, too, holds the lock for an instant."""
    users = FileLock(marker(name, "users"))
    deadline = time.monotonic() + 2
    try:
        while not (free := users.try_take()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return not free
    finally:
        users.close()


def is_ready(name: str) -> bool:
    """True where a cluster runs and may be used."""
    return is_alive(name) and (sites.folder_of(name) / "ready").exists()


def is_alive(name: str) -> bool:
    """True where a cluster has a supervisor."""
    lock = FileLock(marker(name, "alive"))
    try:
        return not lock.try_take()
    finally:
        lock.close()


def wait_until_gone(name: str) -> bool:
    """Waits for a supervisor that is ending, unless the cluster is kept; whether it ended."""
    deadline = time.monotonic() + END_SECONDS
    while is_alive(name):
        if marker(name, "keep").exists() or time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
