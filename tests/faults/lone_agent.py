"""`windlass-agent` beside a server that has none; its data lie in the server's folder."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.site import Site
from tests.support.processes import warm

from windlass.core.app import runtime_dir

# It takes what any project wants.
MACHINE = {"executor": "process", "shared": True}


@dataclass
class LoneAgent:
    """A cluster of this machine's processes, reached by `address` or else the server's socket."""

    site: Site
    name: str = "machine-room"
    address: str = ""
    # The interpreter of another release's environment, perhaps.
    python: str = ""
    program: str = "windlass_agent"
    environment: dict[str, str] = field(default_factory=dict)
    process: warm.Process | None = None

    @property
    def data(self) -> Path:
        return self.site.windlass.data / self.name

    @property
    def socket(self) -> Path:
        return runtime_dir(self.site.windlass.data) / "windlass.sock"

    def start(self) -> None:
        key = self.site.windlass.data / f"{self.name}.key"
        if not key.exists():
            with self.site.windlass.http() as http:
                answer = http.post("/v1/clusters", json={"name": self.name, **MACHINE})
            key.write_text(answer.json()["registration_key"])
        arguments = [
            *("--executor", "process", "--control-plane", self.address or f"unix:{self.socket}"),
            *("--data", str(self.data), "--registration-key-file", str(key)),
            "--stop-jobs-on-exit",
        ]
        with (self.site.windlass.data / f"{self.name}.log").open("ab") as log:
            environment = {**os.environ, "HF_HUB_OFFLINE": "1", **self.environment}
            if not self.python:
                self.process = warm.start(
                    self.program, *arguments, environment=environment, log=log
                )
                return
            command = [self.python, "-m", self.program, *arguments]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(60)
