"""Lease of this replica, its control streams and its shutdown."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from windlass.api.sessions.v1.sessions_pb2 import Dial
from windlass.core import telemetry
from windlass.core.db.wake import Wake
from windlass.core.errors import Unavailable
from windlass.core.ids import new_id
from windlass.core.rpc.clients import Clients
from windlass.metrics.process import LOOP_FAILURES
from windlass.sessions.tunnel.domain import tunnel_topic
from windlass.sessions.tunnel.pending_dials import ControlStream
from windlass.sessions.tunnel.store import RouteStore, superseded
from windlass.tunnel.byte_stream import ForwardStub

RENEW_SECONDS = 2.0
LEASE_SECONDS = 8.0
# Times as long while no other replica lives, which could wait for a lease to run out.
ALONE = 3
# For agents to open their next control stream elsewhere.
DRAIN_SECONDS = 3.0
# Touched whenever a tunnel is claimed, so that the replica that held it lets go.
CLAIMED = "tunnel-claimed"

log = telemetry.logger("tunnel")


class Replica:
    """A replica of the sessions service: this process."""

    def __init__(self, store: RouteStore, wake: Wake, clients: Clients, address: str):
        self.id = new_id("", length=12)
        self.controls: dict[str, ControlStream] = {}
        self._store = store
        self._wake = wake
        self._clients = clients
        self._address = address
        self._announced = asyncio.Event()
        self._draining: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Whether other replicas live, as far as the last round saw.
        self.has_others = False
        self._pace = 1

    def peer(self, address: str) -> ForwardStub:
        """Another replica."""
        return self._clients.stub_at(ForwardStub, address)

    @contextmanager
    def when_draining(self, call: Callable[[], object]) -> Iterator[None]:
        """Calls back if, before the end of the block, the replica is about to stop."""

        def drain(_: object) -> None:
            call()

        self._draining.add_done_callback(drain)
        try:
            yield
        finally:
            self._draining.remove_done_callback(drain)

    async def open_control(self, cluster_id: str, session_id: str) -> ControlStream:
        """Takes a cluster's tunnel over; raises `session_superseded`, or `draining`."""
        await self._announced.wait()
        if self._draining.done():
            raise Unavailable("This server is about to stop.", reason="draining")
        generation = await self._store.claim(cluster_id, self.id, session_id)
        control = ControlStream(cluster_id, session_id, generation)
        before = self.controls.get(cluster_id)
        if before is not None and before.generation > generation:
            control.end()
            return control
        self.controls[cluster_id] = control
        if before is not None:
            before.end(None if before.session_id == session_id else superseded())
        for topic in (CLAIMED, tunnel_topic(cluster_id)):
            self._wake.touch(topic)
        log.info("tunnel_opened", cluster_id=cluster_id, generation=generation)
        return control

    async def close_control(self, control: ControlStream) -> None:
        """Says that a control stream has ended."""
        control.end()
        if self.controls.get(control.cluster_id) is control:
            del self.controls[control.cluster_id]
            await self._store.lose(control.cluster_id, control.generation)
            log.info("tunnel_closed", cluster_id=control.cluster_id, generation=control.generation)

    async def run(self) -> None:
        """Renews the lease and ends control streams that moved, until cancelled; then drains."""
        listener = self._wake.listen(CLAIMED)
        try:
            while True:
                try:
                    await self._round()
                except Exception as error:
                    LOOP_FAILURES.labels("sessions.replica").inc()
                    log.error("replica_lease_renewal_failed", exc_info=error)
                await listener.wait_for_beat(RENEW_SECONDS * self._pace)
        finally:
            listener.close()
            await self._drain()

    async def _round(self) -> None:
        seconds = LEASE_SECONDS * self._pace
        others = await self._store.announce(self.id, self._address, seconds=seconds)
        self.has_others = any(address != self._address for address in others)
        self._pace = 1 if self.has_others else ALONE
        if not self._announced.is_set():
            self._announced.set()
            # Whoever was alone is no longer.
            self._wake.touch(CLAIMED)
        newest = await self._store.newest(self.controls) if self.controls else {}
        for cluster_id, control in tuple(self.controls.items()):
            generation, session_id = newest.get(cluster_id, (0, ""))
            if generation > control.generation:
                control.end(None if control.session_id == session_id else superseded())

    async def _drain(self) -> None:
        """Asks agents to reconnect to other replicas, if any, and waits for them."""
        self._draining.set_result(None)
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._send_away()
        except TimeoutError:
            log.warning("drain_incomplete", tunnels=len(self.controls))
        await self._store.leave(self.id)

    async def _send_away(self) -> None:
        if not self.has_others:
            return
        for control in self.controls.values():
            control.send(Dial(drain=True))
        while self.controls:
            await asyncio.sleep(0.05)
            await self._round()
