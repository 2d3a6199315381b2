"""Keeps the routes of this replica's gateways as rows and observations are."""

from collections import Counter

from windlass.api.clusters.v1 import clusters_pb2
from windlass.core.db.leases import run_loop
from windlass.core.db.wake import Listener
from windlass.inference.domain import RUNNING, Engine, Rows, View
from windlass.inference.observed_state import ObservedState
from windlass.inference.routing import Routes, loads_of, routes_of
from windlass.inference.store import InferenceStore
from windlass.metrics.inference import ENGINES

POLL_SECONDS = 5.0
STATES = ("starting", "ready", "sleeping", "failed", "ending")


async def publish(
    store: InferenceStore,
    observed: ObservedState,
    routes: Routes,
    listener: Listener,
    *,
    engine: str,
) -> None:
    """Publishes after every change, until cancelled; `engine` is the installation's kind."""

    async def once() -> bool:
        rows = await store.rows()
        # Looked at after the rows, since the rows are older than what was observed of them.
        if (view := await observed.view(rows)) is not None:
            routes.publish(routes_of(rows, view, engine), loads_of(rows, view))
            measure(rows, view)
        return False

    async def rests() -> bool:
        return routes.are_known and await store.is_empty()

    await run_loop("inference.routes", listener, once, poll_seconds=POLL_SECONDS, resting=rests)


def measure(rows: Rows, view: View) -> None:
    """Shows operators the engines by state."""
    found = Counter(_state(engine, view) for engine in rows.engines)
    for state in STATES:
        ENGINES.labels(state).set(found[state])


def _state(engine: Engine, view: View) -> str:
    if engine.desired != RUNNING:
        return "ending"
    status = view.status(engine)
    if status.phase == clusters_pb2.PHASE_SLEEPING:
        return "sleeping"
    if status.phase == clusters_pb2.PHASE_RUNNING and status.endpoint:
        return "ready"
    return "failed" if engine.failed_at else "starting"
