# ruff: noqa: A002, `input` as subprocess.run calls it
"""kubectl, as a test's own hand in a cluster."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path


class KubectlError(RuntimeError):
    """kubectl failed; the message is what it said."""


@dataclass(frozen=True)
class Kubectl:
    """A kubectl program with a kubeconfig; `prefix` runs it elsewhere."""

    program: Path | str
    kubeconfig: Path
    cache: Path
    prefix: list[str] = field(default_factory=list)

    def __call__(self, *words: str, input: str = "", check: bool = True) -> str:
        """The output; a failure raises its error, unless `check` is off."""
        done = self.run(*words, input=input)
        if check and done.returncode:
            raise KubectlError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def works(self, *words: str, input: str = "") -> bool:
        """True where it succeeds."""
        return self.run(*words, input=input).returncode == 0

    def run(self, *words: str, input: str = "") -> subprocess.CompletedProcess[str]:
        """Runs it to its end."""
        return subprocess.run(
            self.command(*words), input=input, capture_output=True, text=True, check=False
        )

    def command(self, *words: str) -> list[str]:
        """The whole command line."""
        options = ["--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self.cache)]
        return [*self.prefix, str(self.program), *options, *words]
