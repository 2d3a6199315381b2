"""The agent's certificate authority, trusted by its runners and kept in a Secret."""

from base64 import b64decode, b64encode
from typing import Any

from windlass.kubernetes.labels import MANAGED_BY
from windlass.tunnel.authority import Authority
from windlass_agent.kube import Conflict, Kube, ResourceNotFound
from windlass_agent.kube.resources import SECRETS

SECRET = "windlass-agent-runners"  # noqa: S105 - the name of a Secret


async def kept_authority(kube: Kube, namespace: str) -> Authority:
    """Returns the authority in the agent's Secret, made at the first start; raises KubeError."""
    path = SECRETS.path(namespace, SECRET)
    made = Authority.make()
    data = {
        "ca.crt": b64encode(made.certificate).decode(),
        "ca.key": b64encode(made.key).decode(),
    }
    try:
        secret = await kube.get(path)
        if secret.get("data"):
            return _from_secret(secret)
        # The chart makes it empty, so that the agent need not be let create Secrets.
        version = secret["metadata"]["resourceVersion"]
        await kube.patch(path, {"metadata": {"resourceVersion": version}, "data": data})
    except ResourceNotFound:
        metadata = {"name": SECRET, "labels": dict(MANAGED_BY)}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        try:
            await kube.create(SECRETS.path(namespace), body)
        except Conflict:
            return _from_secret(await kube.get(path))
    except Conflict:
        return _from_secret(await kube.get(path))
    return made


def _from_secret(secret: dict[str, Any]) -> Authority:
    data = secret.get("data") or {}
    return Authority(b64decode(data.get("ca.crt", "")), b64decode(data.get("ca.key", "")))
