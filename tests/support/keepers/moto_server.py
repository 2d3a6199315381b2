"""A moto server, which answers as AWS KMS and STS, in an environment of its own."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import httpx
from tests.support.environments import made_once
from tests.support.environments.required import lacking
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

REQUIREMENTS = ("moto[kms,server]==5.2.5",)
# moto accepts any; it checks neither signatures nor policies.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
REGION = "eu-central-1"
ROLE = "arn:aws:iam::123456789012:role/windlass"
START_SECONDS = 60


@dataclass(frozen=True)
class Moto:
    """A running server."""

    url: str

    @property
    def kms(self) -> Any:
        """A client for who administers the keys."""
        return boto3.client(
            "kms",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def key(self) -> str:
        """Makes a key, and returns its ARN."""
        return str(self.kms.create_key()["KeyMetadata"]["Arn"])


def environment() -> Path:
    """The `bin` of moto's environment; raises CalledProcessError when it cannot be installed."""
    return made_once.environment("moto-env", *REQUIREMENTS)


@contextlib.contextmanager
def running() -> Iterator[Moto]:
    """Runs a server on loopback."""
    try:
        program = environment() / "moto_server"
    except subprocess.CalledProcessError:
        lacking("moto cannot be installed: the package index does not answer")
    server = Moto(f"http://127.0.0.1:{(port := free_port())}")
    command = (str(program), "-H", "127.0.0.1", "-p", str(port))
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )

    def ready() -> bool:
        assert process.poll() is None, "moto ended"
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{server.url}/moto-api/data.json").is_success
        return False

    try:
        wait_until(ready, "moto", START_SECONDS)
        yield server
    finally:
        process.kill()
        process.wait()
