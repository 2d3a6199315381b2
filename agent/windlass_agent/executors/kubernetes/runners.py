"""RunnerService for pods: TLS by the agent's own authority, and tokens verified by the cluster.

A pod shows the token of its service account, made for us and bound to it. Which attempt that
is says our own informer of the pod, never who holds the token.
"""

import asyncio
import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
import msgspec

from windlass.api.keeper.v1.keeper_pb2_grpc import (
    KeeperServiceServicer,
    add_KeeperServiceServicer_to_server,
)
from windlass.api.runner.v1 import runner_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.errors import Unavailable
from windlass.core.rpc.auth import digest
from windlass.core.rpc.clients import PINGED_OPTIONS
from windlass.tunnel.authority import Authority, is_stale
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.executors.kubernetes.observe.snapshot import PodSnapshot
from windlass_agent.executors.kubernetes.render.parts import AUDIENCE
from windlass_agent.kube import Kube, KubeError
from windlass_agent.kube.resources import TOKENREVIEWS
from windlass_agent.runner_service import Registered, RunnerServicer

_PODS = "authentication.kubernetes.io/pod-name"
_PODS_UID = "authentication.kubernetes.io/pod-uid"
# How long an answer of the cluster is believed.
REVIEW_SECONDS = 60.0
# How far our clock may be off: the cluster itself judges a token's time.
CLOCKS_SECONDS = 24 * 3600.0
MAX_KNOWN = 10_000
_REVIEWS_AT_ONCE = 8
_LONGEST_TOKEN = 16 * 1024

log = telemetry.logger("runners")
Holder = TypeVar("Holder")


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims of a pod's token, not yet verified; times in Unix seconds."""

    namespace: str
    pod: str
    uid: str
    service_account: str
    expires_at: float


def read_claims(token: str) -> Claims | None:
    """The claims of a token; None unless it is a pod's token for this agent."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > _LONGEST_TOKEN:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = msgspec.json.decode(base64.urlsafe_b64decode(padded))
        bound = claims["kubernetes.io"]
        audience = claims["aud"]
        if AUDIENCE not in ([audience] if isinstance(audience, str) else audience):
            return None
        return Claims(
            namespace=str(bound["namespace"]),
            pod=str(bound["pod"]["name"]),
            uid=str(bound["pod"]["uid"]),
            service_account=str(bound["serviceaccount"]["name"]),
            expires_at=float(claims["exp"]),
        )
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None


class PodTokens(Generic[Holder]):
    """Lookup of the holder of a pod's token, such as an attempt.

    `find_pod` returns one of our pods by namespace and name, `registered` who it is. A token
    that is not of a pod of ours costs the cluster nothing.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        find_pod: Callable[[str, str], PodSnapshot | None],
        registered: Callable[[PodSnapshot], Holder],
    ):
        self._kube = kube
        self._find_pod = find_pod
        self._registered = registered
        # Until when a token of some digest is believed, on the monotonic clock.
        self._known: dict[bytes, float] = {}
        self._turn = asyncio.Semaphore(_REVIEWS_AT_ONCE)

    async def find(self, token: str) -> Holder | None:
        """The holder of a token; raises Unavailable when the cluster cannot be asked."""
        claims = read_claims(token)
        if claims is None:
            return None
        pod = self._find_pod(claims.namespace, claims.pod)
        if pod is None or pod.uid != claims.uid or pod.ended:
            return None
        if (
            claims.service_account != pod.service_account
            or claims.expires_at < time.time() - CLOCKS_SECONDS
        ):
            return None
        known = digest(token)
        if self._known.get(known, 0.0) <= time.monotonic():
            async with self._turn:
                if not await self._review(token, claims):
                    return None
            self._remember(known)
        return self._registered(pod)

    async def _review(self, token: str, claims: Claims) -> bool:
        request = {
            "apiVersion": TOKENREVIEWS.api_version,
            "kind": TOKENREVIEWS.kind,
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        try:
            answer = await self._kube.create(TOKENREVIEWS.path(), request)
        except KubeError as error:
            log.warning("token_review_failed", reason=error.reason, message=error.message)
            raise Unavailable("The cluster cannot verify this token right now.") from error
        status: dict[str, Any] = answer.get("status") or {}
        user = status.get("user") or {}
        extra = user.get("extra") or {}
        account = f"system:serviceaccount:{claims.namespace}:{claims.service_account}"
        return (
            status.get("authenticated") is True
            and AUDIENCE in (status.get("audiences") or ())
            and user.get("username") == account
            and extra.get(_PODS) == [claims.pod]
            and extra.get(_PODS_UID) == [claims.uid]
        )

    def _remember(self, known: bytes) -> None:
        while len(self._known) >= MAX_KNOWN:
            # The oldest: dictionaries keep their order.
            del self._known[next(iter(self._known))]
        self._known.pop(known, None)
        self._known[known] = time.monotonic() + REVIEW_SECONDS


class RunnerListener:
    """Serves runners and keepers in pods, under a certificate that it renews."""

    def __init__(
        self,
        tokens: PodTokens[Registered],
        control: ControlPlane,
        keepers: KeeperServiceServicer,
        *,
        authority: Authority,
        listen: str,
        host: str,
    ):
        self._authority = authority
        self._listen = listen
        self._host = host
        self._certificate = b""
        self._server = grpc.aio.server(options=PINGED_OPTIONS, maximum_concurrent_rpcs=4000)
        rpc.add_RunnerServiceServicer_to_server(RunnerServicer(tokens, control), self._server)
        add_KeeperServiceServicer_to_server(keepers, self._server)

    async def start(self) -> None:
        """Binds and serves; raises OSError when the port is taken."""
        credentials = grpc.dynamic_ssl_server_credentials(
            self._renewed(), self._renewed, require_client_authentication=False
        )
        try:
            self._server.add_secure_port(self._listen, credentials)
        except RuntimeError as error:
            raise OSError(f"runners cannot be served on {self._listen}: {error}") from error
        await self._server.start()

    def _renewed(self) -> Any:
        """Asked at each handshake; None leaves what there is."""
        if self._certificate and not is_stale(self._certificate):
            return None
        self._certificate, key = self._authority.issue(self._host)
        return grpc.ssl_server_certificate_configuration([(key, self._certificate)])

    async def stop(self) -> None:
        """Stops serving and cancels open calls, which runners retry."""
        await self._server.stop(None)
