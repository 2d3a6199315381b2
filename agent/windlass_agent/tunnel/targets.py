"""Targets that a connection may reach: the cluster's API server and this agent's workloads."""

import ssl
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from windlass.api.sessions.v1.sessions_pb2 import KubernetesTarget, Target
from windlass.tunnel.byte_stream import ByteStream, at_once
from windlass.tunnel.splicing import splice
from windlass_agent.tunnel.picking.chooser import ReplicaChooser
from windlass_agent.tunnel.picking.connection import PickedConnection
from windlass_agent.tunnel.refusal import TargetRefused
from windlass_agent.tunnel.sockets import Socket, connect, connect_unix


class Upstream(Protocol):
    """A connection to a target, before its bytes flow."""

    async def serve(self, stream: ByteStream) -> None:
        """Carries the connection to its end; raises AppError or MalformedHttp."""

    def close(self) -> None:
        """Lets the target go; may be repeated."""


class Api(Protocol):
    """A cluster's API server."""

    async def open(self, target: KubernetesTarget) -> Upstream:
        """A connection to it; raises TargetRefused."""


class PodDoors(Protocol):
    """The ways to pods that serve."""

    @property
    def tls(self) -> ssl.SSLContext:
        """Shows who we are, and trusts what our own authority has certified."""

    def find(self, workload_id: str) -> tuple[str, int, str] | None:
        """Host, port and name of the door of a workload that serves; None of any other."""


class Targets:
    """The allow-list. An address never comes from outside, only the name of what has one."""

    def __init__(
        self,
        *,
        endpoint: Callable[[str], str],
        kubernetes: Api | None = None,
        doors: PodDoors | None = None,
        chooser: ReplicaChooser | None = None,
    ):
        """`endpoint` returns a workload's `unix:///path` or `http://host:port`, "" if unknown.

        `doors` is asked first: it knows the workloads that are pods, for whose requests `chooser`
        may name others.
        """
        self._endpoint = endpoint
        self._doors = doors
        self._chooser = chooser
        self._kubernetes = kubernetes

    async def open(self, target: Target) -> Upstream:
        """Connects to a target; raises TargetRefused with a sentence."""
        if target.WhichOneof("target") == "workload_id":
            return await self._workload(target.workload_id)
        if target.WhichOneof("target") == "kubernetes":
            if self._kubernetes is None:
                raise TargetRefused("This cluster has no Kubernetes API.")
            return await self._kubernetes.open(target.kubernetes)
        raise TargetRefused("This agent does not support this kind of target.")

    async def _workload(self, workload_id: str) -> Upstream:
        try:
            if (socket := await self._pod(workload_id)) is None:
                return Raw(await self._other(workload_id))
        except OSError as error:
            raise TargetRefused(
                f"The workload {workload_id!r} does not answer: {error}."
            ) from error
        if self._chooser is None or not self._chooser.has_picker(workload_id):
            return Raw(socket)
        return PickedConnection(workload_id, socket, chooser=self._chooser, connect=self._replica)

    async def _pod(self, workload_id: str) -> Socket | None:
        """A connection to the door of a pod that serves; None for no such pod. Raises OSError."""
        door = self._doors.find(workload_id) if self._doors is not None else None
        if self._doors is None or door is None:
            return None
        host, port, name = door
        return await connect(host, port, tls=self._doors.tls, server_name=name)

    async def _replica(self, workload_id: str) -> Socket:
        if (socket := await self._pod(workload_id)) is None:
            raise ConnectionError("it does not serve any more")
        return socket

    async def _other(self, workload_id: str) -> Socket:
        address = self._endpoint(workload_id)
        if not address:
            raise TargetRefused(f"No workload {workload_id!r} runs here.")
        parts = urlsplit(address)
        if parts.scheme == "unix":
            return await connect_unix(parts.path)
        return await connect(parts.hostname or "", parts.port or 80)


class Raw:
    """Bytes both ways, each side ended by itself."""

    def __init__(self, socket: Socket):
        self._socket = socket

    async def serve(self, stream: ByteStream) -> None:
        """Joins the two."""
        self._socket.pass_on(at_once(stream))
        await splice(stream, self._socket)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()
