"""Audit events: from a process's spool into the chained log of a server, and its verification."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import psycopg
from tests.bench.figures import Figure, Options, at_least
from tests.bench.plant import NO_AGENT, served_on

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.api.rbac.v1 import rbac_pb2_grpc as rpc
from windlass.audit import AuditQueue
from windlass.audit.queue import BATCH
from windlass.audit_chain.walk import ChainFault, ChainWalk
from windlass.core.clock import now_ms
from windlass.core.db import Database
from windlass.core.ids import new_id
from windlass.core.rpc.clients import Clients
from windlass.core.rpc.tokens import TokenAuthority
from windlass.rbac.store import AuditStore

ORGANIZATION = "org_bench"
# Events that a process records before it waits for the disk, as calls that come at once.
AT_ONCE = 100
_BARE = "INSERT INTO bare_events SELECT * FROM rbac_audit_events WHERE organization_id = %s AND "


async def measure(options: Options) -> list[Figure]:
    """Rates of a sustained load: all is on disk first, then in the database."""
    events = 10_000 if options.quick else 100_000
    async with served_on(NO_AGENT) as (plant, url):
        database = Database(url)
        tokens = TokenAuthority(database, kind="service", name="bench")
        await tokens.rotate()
        clients = Clients(
            own_address="",
            own_services=(),
            peers={"rbac": plant.grpc_address},
            service_token=tokens.sign_service,
        )
        recorded = events / await _recorded(clients, plant.folder / "spool", events)
        bare = events / await asyncio.to_thread(_bare, url.replace("+psycopg", ""), events)
        verified, read = await _verified(database, events)
        await clients.close()
        await database.close()
    return [
        at_least("audit_recorded", recorded, "events/s", 5_000).beside("bare INSERT", bare),
        at_least("audit_verified", verified, "events/s", 100_000).beside("bare SELECT", read),
    ]


async def _recorded(clients: Clients, folder: Path, events: int) -> float:
    """Seconds until the last event is in the log."""
    queue = AuditQueue(lambda: clients.stub(rpc.RbacInternalServiceStub), folder)
    running = asyncio.create_task(queue.run())
    began = time.perf_counter()
    for number in range(events):
        queue.add(_event(number))
        if number % AT_ONCE == AT_ONCE - 1:
            await queue.kept()
    while list(folder.glob("*.log")):
        await asyncio.sleep(0.01)
    took = time.perf_counter() - began
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return took


def _event(number: int) -> pb.AuditEvent:
    return pb.AuditEvent(
        id=new_id("audit_"),
        at_ms=now_ms(),
        organization_id=ORGANIZATION,
        project_id="proj_" + "p" * 24,
        user_id="ann@example.com",
        key_id="key_" + "k" * 24,
        action="windlass.api.files.v1.FilesService/DeleteFile",
        resource=f"file-{number:024d}",
        outcome="OK",
        request_id=new_id("req_"),
        address="192.0.2.7",
    )


def _bare(url: str, events: int) -> float:
    """Seconds to insert the same rows in batches of the same size, without chain and RPC."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE bare_events (LIKE rbac_audit_events INCLUDING INDEXES)")
        connection.commit()
        began = time.perf_counter()
        for first in range(0, events, BATCH):
            bounds = f"sequence > {first} AND sequence <= {first + BATCH}"
            connection.execute((_BARE + bounds).encode(), (ORGANIZATION,))
            connection.commit()
        return time.perf_counter() - began


async def _verified(database: Database, events: int) -> tuple[float, float]:
    """Events a second of a verification, and of reading the same rows."""
    audit = AuditStore(database)
    # A connection, and the rows in the database's memory.
    await audit.walk(_Reader(ORGANIZATION), until=events)
    began = time.perf_counter()
    walk = ChainWalk(ORGANIZATION)
    fault = await audit.walk(walk, until=events)
    took = time.perf_counter() - began
    if fault is not None or walk.sequence != events:
        raise RuntimeError(f"the chain is not right: {fault}, {walk.sequence}")
    began = time.perf_counter()
    await audit.walk(_Reader(ORGANIZATION), until=events)
    return events / took, events / (time.perf_counter() - began)


class _Reader(ChainWalk):
    """A walk that hashes nothing."""

    def follow(self, events: Iterable[tuple[Mapping[str, object], bytes]]) -> ChainFault | None:
        """Takes all for right."""
        for event, _ in events:
            if isinstance(sequence := event["sequence"], int):
                self.sequence = sequence
        return None
