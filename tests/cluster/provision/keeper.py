"""Programs that are started, stopped and started again, at the word of a local socket."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

PAUSE_SECONDS = 0.5


class Keeper:
    """Keeps what was started running, as an init system does; made for process 1."""

    def __init__(self, commands: dict[str, list[str]], logs: Path) -> None:
        self._commands = commands
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._wanted: set[str] = set()
        self._changed = threading.Condition()

    def listen(self, path: Path) -> None:
        """Returns `start NAME`, `stop NAME` and `restart NAME`, each once it is done."""
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()
        threading.Thread(target=self._serve, args=(server,), daemon=True).start()

    def reap(self) -> None:
        """Waits for children for ever, also for those that process 1 inherits."""
        while True:
            try:
                pid, _ = os.waitpid(-1, 0)
            except ChildProcessError:
                time.sleep(PAUSE_SECONDS / 10)
                continue
            with self._changed:
                for name, process in list(self._running.items()):
                    if process.pid == pid:
                        del self._running[name]
                        if name in self._wanted:
                            threading.Timer(PAUSE_SECONDS, self._start, [name]).start()
                self._changed.notify_all()

    def _serve(self, server: socket.socket) -> None:
        while True:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                verb, _, name = connection.recv(1024).decode().partition(" ")
                connection.sendall(self._obey(verb, name).encode())

    def _obey(self, verb: str, name: str) -> str:
        if name not in self._commands or verb not in ("start", "stop", "restart"):
            return f"no such thing to do: {verb} {name}"
        if verb in ("stop", "restart"):
            self._stop(name)
        if verb in ("start", "restart"):
            with self._changed:
                self._wanted.add(name)
            self._start(name)
        return "done"

    def _start(self, name: str) -> None:
        with self._changed:
            if name in self._running or name not in self._wanted:
                return
            with (self._logs / f"{name}.log").open("ab") as log:
                # The reaper takes its exit status, so nobody may wait for this object.
                self._running[name] = subprocess.Popen(
                    self._commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )

    def _stop(self, name: str) -> None:
        with self._changed:
            self._wanted.discard(name)
            process = self._running.get(name)
            if process is not None:
                os.kill(process.pid, signal.SIGKILL)
                self._changed.wait_for(lambda: self._running.get(name) is not process)


def order(path: Path, verb: str, name: str) -> None:
    """Has a keeper start, stop or restart a program, and waits until it has."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(path))
        connection.sendall(f"{verb} {name}".encode())
        answer = connection.recv(1024).decode()
    if answer != "done":
        raise RuntimeError(answer or f"the keeper is gone: {verb} {name}")
