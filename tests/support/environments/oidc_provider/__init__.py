"""A real issuer of OpenID Connect: the npm package oidc-provider, in a process of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from joserfc.jwk import RSAKey
from tests.support.environments import made_once, required
from tests.support.processes.windlass import free_port

HERE = Path(__file__).parent
FILES = ("package.json", "package-lock.json", "issuer.mjs")
# Form-encoded in HTTP Basic it is another text.
CLIENT_ID, CLIENT_SECRET = "windlass", "of-a+test%25&1"


def environment() -> Path:
    """The folder of the package; the test is skipped where it cannot be had."""
    try:
        return built()
    except (subprocess.CalledProcessError, OSError) as error:
        required.lacking(f"oidc-provider cannot be installed: {error!r}")


def built() -> Path:
    """The folder, made once."""
    return made_once.once(
        "oidc-provider", "\n".join(map(_text, FILES)), _make, home=made_once.CACHE
    )


def _text(name: str) -> str:
    return (HERE / name).read_text()


def _make(folder: Path) -> None:
    print(f"installing oidc-provider into {folder}", file=sys.stderr, flush=True)
    folder.mkdir(parents=True)
    for name in FILES:
        shutil.copy(HERE / name, folder)
    npm = ("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    subprocess.run(npm, cwd=folder, check=True, stdout=sys.stderr)


def _new_key(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid})


@dataclass
class Issuer:
    """A running issuer, and what it tells of people."""

    callbacks: tuple[str, ...]
    people: Mapping[str, Mapping[str, Any]]
    port: int = field(default_factory=free_port)
    logout_uri: str = ""
    # Seconds by which its clock is ahead.
    clock_offset: int = 0
    _process: subprocess.Popen[str] | None = None
    # It signs with the first, and with the next after each rotation.
    _keys: tuple[RSAKey, ...] = field(default_factory=lambda: tuple(map(_new_key, ("one", "two"))))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, **changes: Any) -> None:
        """Starts it, or starts it anew with other settings and the same keys."""
        self.stop()
        for name, value in changes.items():
            setattr(self, name, value)
        use = {"use": "sig", "alg": "RS256"}
        jwks = [{**key.as_dict(private=True), **use} for key in self._keys]
        settings = {
            "ISSUER": self.url,
            "CLIENT_ID": CLIENT_ID,
            "CLIENT_SECRET": CLIENT_SECRET,
            "REDIRECT_URIS": " ".join(self.callbacks),
            "LOGOUT_URI": self.logout_uri,
            "PEOPLE": json.dumps(self.people),
            "JWKS": json.dumps(jwks),
            "CLOCK_OFFSET": str(self.clock_offset),
        }
        self._process = subprocess.Popen(
            ("node", "issuer.mjs"),
            cwd=environment(),
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._says("ready")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def rotate(self) -> None:
        """Has it sign with its next key, and know no other; codes that it gave stay good."""
        self._signal(signal.SIGUSR2)
        self._says("rotated")

    def hang(self) -> None:
        """Has it take connections and answer nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _says(self, word: str) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        assert any(line.strip() == word for line in self._process.stdout)

    def provider(self, **settings: Any) -> dict[str, Any]:
        """The body by which Windlass is told of it."""
        return {
            "name": "issuer",
            "issuer": self.url,
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            **settings,
        }


@contextmanager
def running_issuer(
    callback: str, people: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[Issuer]:
    """Runs an issuer until the end of the block."""
    issuer = Issuer((callback,), people or {})
    issuer.start()
    try:
        yield issuer
    finally:
        issuer.stop()
