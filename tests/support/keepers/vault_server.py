"""A Vault with a transit key: the real one that VAULT_BINARY names, otherwise the fake."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
from tests.support.fakes import vault
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

# Of Vault or OpenBao; no package registry has either.
BINARY = os.environ.get("VAULT_BINARY", "")
_HEADERS = {"X-Vault-Token": vault.TOKEN}
START_SECONDS = 30


@contextmanager
def running() -> Iterator[str]:
    """Serves one key, `transit/windlass`, for the fake's token at the URL that it yields."""
    if not BINARY:
        with vault.running() as address:
            yield address
        return
    listen = f"127.0.0.1:{free_port()}"
    command = (
        BINARY, "server", "-dev", f"-dev-root-token-id={vault.TOKEN}",
        f"-dev-listen-address={listen}", "-dev-no-store-token",
    )  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://{listen}"

    def ready() -> bool:
        assert process.poll() is None, f"{BINARY} ended"
        with suppress(httpx.TransportError):
            return httpx.get(f"{address}/v1/sys/health").is_success
        return False

    try:
        wait_until(ready, "Vault", START_SECONDS)
        with httpx.Client(base_url=f"{address}/v1", headers=_HEADERS) as http:
            http.post("/sys/mounts/transit", json={"type": "transit"}).raise_for_status()
            http.post("/transit/keys/windlass").raise_for_status()
        yield address
    finally:
        process.kill()
        process.wait()
