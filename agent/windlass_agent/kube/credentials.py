"""The agent's credential in a Secret of its own cluster."""

import base64

from windlass_agent.control_plane.credentials import Credential
from windlass_agent.kube.client import Kube
from windlass_agent.kube.errors import ResourceNotFound
from windlass_agent.kube.resources import SECRETS


class SecretCredentials:
    """A Secret of the agent's own in its cluster; raises KubeError.

    Keys: `credential` and `cluster-id`.
    """

    def __init__(self, kube: Kube, namespace: str, name: str):
        self._kube = kube
        self._namespace, self._name = namespace, name
        self._path = SECRETS.path(namespace, name)

    async def load(self) -> Credential | None:
        """See CredentialStore."""
        try:
            secret = await self._kube.get(self._path)
        except ResourceNotFound:
            return None
        data = {
            key: base64.b64decode(value).decode().strip()
            for key, value in (secret.get("data") or {}).items()
        }
        # The chart may make it empty, so that the agent need not be let create Secrets.
        if not data.get("credential"):
            return None
        return Credential(data["credential"], data.get("cluster-id", ""))

    async def save(self, credential: Credential) -> None:
        """See CredentialStore."""
        await self._write({"credential": credential.secret, "cluster-id": credential.cluster_id})

    async def forget(self) -> None:
        """See CredentialStore."""
        await self._write({})

    async def _write(self, data: dict[str, str]) -> None:
        body = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
        }
        await self._kube.apply(self._path, body)
