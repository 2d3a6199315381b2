"""Access to a cluster's API: its address, its CA and the client's credentials."""

import os
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_KUBECONFIG = Path("~/.kube/config")
_TOKEN_SECONDS = 60.0


class NoAccess(Exception):
    """Missing access: no address of the API, or no credential for it."""


@dataclass(frozen=True)
class Access:
    """One cluster's API.

    `tls` is None for plain HTTP. `authorization` answers the header's value as it is now,
    empty where a client certificate speaks for us; the tunnel shows it too.
    """

    url: str
    tls: ssl.SSLContext | None
    authorization: Callable[[], Awaitable[str]]
    # Name in the certificate where it is not the URL's.
    server_name: str = ""


async def in_cluster(account: Path = _ACCOUNT) -> Access:
    """Access to the cluster of this pod; raises NoAccess outside of one."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (account / "token").is_file():
        raise NoAccess("This is not a pod with a service account's token; name a kubeconfig.")
    address = f"[{host}]" if ":" in host else host
    token = _Renewed(lambda: _token(account / "token"))
    return Access(f"https://{address}:{port}", _tls(account / "ca.crt"), token.value)


async def from_kubeconfig(path: Path | None = None, *, context: str = "") -> Access:
    """Access by a context of a kubeconfig; tokens from a file or a plugin are renewed.

    Raises NoAccess that says what is missing.
    """
    # It takes 27 MiB to import, which the agent in a cluster does not have to spare.
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException, load_kube_config

    untyped: Any = load_kube_config

    async def load() -> Any:
        configuration = Configuration()
        try:
            await untyped(
                config_file=str((path or _KUBECONFIG).expanduser()),
                context=context or None,
                client_configuration=configuration,
                persist_config=False,
            )
        except ConfigException as error:
            raise NoAccess(str(error)) from error
        return configuration

    async def bearer() -> str:
        configuration = await load()
        scheme, _, token = str(configuration.api_key.get("BearerToken", "")).partition(" ")
        return f"Bearer {token.strip()}" if scheme.lower() == "bearer" else ""

    configuration = await load()
    tls = None
    if configuration.host.startswith("https://"):
        tls = _tls(configuration.ssl_ca_cert)
        if configuration.cert_file:
            tls.load_cert_chain(configuration.cert_file, configuration.key_file)
        if not configuration.verify_ssl:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
    return Access(
        url=configuration.host.rstrip("/"),
        tls=tls,
        authorization=_Renewed(bearer).value,
        server_name=configuration.tls_server_name or "",
    )


async def _token(path: Path) -> str:
    return f"Bearer {path.read_text().strip()}"


def _tls(authorities: Path | str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authorities)
    # Clusters' own authorities often lack what strict checks of newer Pythons ask for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


class _Renewed:
    """A header's value, made anew each minute: the kubelet rotates tokens, plugins renew them."""

    def __init__(self, make: Callable[[], Awaitable[str]]) -> None:
        self._make = make
        self._made = ""
        self._made_at = float("-inf")

    async def value(self) -> str:
        now = time.monotonic()
        if now - self._made_at > _TOKEN_SECONDS:
            self._made = await self._make()
            self._made_at = now
        return self._made
