"""The server of the demo: one that is up already, or one of its own for as long as it takes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from windlass.client import Windlass
from windlass.demo.interrupts import INTERRUPTS
from windlass.demo.narrator import Narrator

READY_SECONDS = 120
STOP_SECONDS = 60
LOG = "serve.log"
OWNER_KEY = "owner.key"


class ServerFailed(Exception):
    """The server did not start; the message says why."""


@dataclass(frozen=True)
class DemoServer:
    """A server of a data folder; `process` is None for one that was up before the demo."""

    data: Path
    url: str
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def free_port(self) -> int:
        """The port that is free again once the demo has ended; 0 if its server stays."""
        return 0 if self.process is None else httpx.URL(self.url).port or 0

    def wait_ready(self) -> None:
        """Waits until it answers; raises ServerFailed."""
        if self.process is None:
            return
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ServerFailed(f"The server ended: {_last_words(self.data / LOG)}")
            with suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", timeout=2).status_code == httpx.codes.OK:
                    return
            time.sleep(0.05)
        raise ServerFailed(f"The server was not ready within {READY_SECONDS} s.")

    def client(self) -> Windlass:
        """A client with the owner's key, once it is ready."""
        return Windlass(self.url, (self.data / OWNER_KEY).read_text().strip(), timeout=300)


@contextmanager
def server_of(data: Path, narrator: Narrator) -> Iterator[DemoServer]:
    """Yields the server of `data`, which may not be ready; if none is up, one for the block."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    if url := running_url(data):
        yield DemoServer(data, url)
        return
    try:
        with _started(data, narrator) as server:
            yield server
    except Exception as error:
        error.add_note(f"The server's log: {data / LOG}")
        raise


def running_url(data: Path) -> str:
    """The address of the data folder's server if it is up, else nothing."""
    with suppress(OSError, httpx.HTTPError, httpx.InvalidURL):
        url = (data / "address").read_text().strip()
        key = (data / OWNER_KEY).read_text().strip()
        # Another server may listen there by now, which does not know this key.
        answer = httpx.get(f"{url}/v1/me", headers={"Authorization": f"Bearer {key}"}, timeout=5)
        return url if answer.is_success else ""
    return ""


@contextmanager
def _started(data: Path, narrator: Narrator) -> Iterator[DemoServer]:
    port = _free_port()
    command = [sys.executable, "-m", "windlass", "serve", "--data", str(data), "--port", str(port)]
    with (data / LOG).open("ab") as log, ExitStack() as stack:
        # Interrupted in between, it would run on and nobody would know of it.
        with INTERRUPTS.held():
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            stack.callback(_stop, process, narrator)
        yield DemoServer(data, f"http://127.0.0.1:{port}", process)


def _stop(process: "subprocess.Popen[bytes]", narrator: Narrator) -> None:
    with INTERRUPTS.held(), narrator.waiting("stopping the platform"):
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing."


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
