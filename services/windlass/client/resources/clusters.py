"""Clusters: short-lived access to what a project runs there."""

import ssl
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import httpx

from windlass.client.errors import WindlassError, translated
from windlass.client.resources.cluster_administration import PATH, ClusterAdministration
from windlass.client.transport.urls import at
from windlass.kubernetes.labels import ATTEMPT, JOB

# A token is changed for a fresh one when it has less than this left.
SPARE_SECONDS = 60
CONNECT_SECONDS = 30.0


class Clusters(ClusterAdministration):
    """Clusters by id or name, access to them, and what their administrators do."""

    def find(self, cluster: str) -> dict[str, Any]:
        """A cluster by its id or its name; raises WindlassError when there is none."""
        for item in self._client.pages(PATH):
            if cluster in (item["id"], item["name"]):
                return dict(item)
        return dict(self._client.get(at(PATH, cluster)))

    def access(self, cluster_id: str, *, seconds: int = 0) -> dict[str, Any]:
        """A token, where to use it, and in which namespace."""
        answer = self._client.post(at(PATH, cluster_id, "access"), {"seconds": seconds})
        return dict(answer)

    def kubernetes(self, cluster_id: str) -> "Kubernetes":
        """The cluster's API server, as far as the project may use it."""
        return Kubernetes(self, cluster_id)


class Kubernetes:
    """Calls to a cluster's API server, within the project's namespace."""

    def __init__(self, clusters: Clusters, cluster_id: str):
        self._clusters = clusters
        self._cluster_id = cluster_id
        self._access = clusters.access(cluster_id)
        self.server = str(self._access["server"])
        self.namespace = str(self._access["namespace"])

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """The TLS context that checks the server's certificate."""
        return ssl.create_default_context(cadata=self._access["ca"] or None)

    @cached_property
    def _http(self) -> httpx.Client:
        return httpx.Client(verify=self.tls, timeout=CONNECT_SECONDS)

    def authorization(self) -> dict[str, str]:
        """The header that says who is asking."""
        if self._access["expires_at"] - time.time() < SPARE_SECONDS:
            self._access = self._clusters.access(self._cluster_id)
        return {"Authorization": f"Bearer {self._access['token']}"}

    def url(self, *parts: str) -> str:
        """The address of something in the namespace, of API group ''."""
        return at(f"{self.server}/api/v1/namespaces", self.namespace, *parts)

    def pods_of(self, job_id: str) -> list[dict[str, Any]]:
        """The job's pods, those of the latest attempt first, then by name."""
        with translated():
            answer = self._http.get(
                self.url("pods"),
                params={"labelSelector": f"{JOB}={job_id}"},
                headers=self.authorization(),
            )
        _raise_for(answer)
        pods = sorted(answer.json()["items"], key=lambda pod: str(pod["metadata"]["name"]))
        return sorted(pods, key=_attempt, reverse=True)

    def log(self, pod: str, container: str, *, follow: bool = False) -> Iterator[bytes]:
        """The container's log from its beginning; with `follow` until it ends."""
        timeout = httpx.Timeout(CONNECT_SECONDS, read=None)
        with (
            translated(),
            self._http.stream(
                "GET",
                self.url("pods", pod, "log"),
                params={"container": container, "follow": "true" if follow else "false"},
                headers=self.authorization(),
                timeout=timeout,
            ) as response,
        ):
            if not response.is_success:
                response.read()
                _raise_for(response)
            yield from response.iter_bytes()

    def close(self) -> None:
        """Closes connections."""
        self._http.close()


def container_of(pod: dict[str, Any]) -> str:
    """The container that a person means: the annotated one, else the first."""
    annotations = pod["metadata"].get("annotations") or {}
    named = annotations.get("kubectl.kubernetes.io/default-container")
    return str(named or pod["spec"]["containers"][0]["name"])


def status_error(status: int, body: Any) -> WindlassError:
    """Kubernetes' Status object as an error."""
    fields = body if isinstance(body, dict) else {}
    message = str(fields.get("message") or f"The cluster answered {status}.")
    reason = str(fields.get("reason") or "")
    return WindlassError(message, status=status, code=reason, param="", request_id="")


def _raise_for(response: httpx.Response) -> None:
    if response.is_success:
        return
    try:
        body = response.json()
    except ValueError:
        body = None
    raise status_error(response.status_code, body)


def _attempt(pod: dict[str, Any]) -> int:
    text = str(pod["metadata"]["labels"].get(ATTEMPT, "0"))
    return int(text) if text.isdecimal() else 0
