"""Keeps the routes of this replica's gateways as the rows and the world are."""

from windlass.core.db.leases import run_loop
from windlass.core.db.wake import Listener
from windlass.inference.routing import Routes, routes_of
from windlass.inference.store import InferenceStore
from windlass.inference.world import ObservedState

POLL_SECONDS = 5.0


async def publish(
    store: InferenceStore, world: ObservedState, routes: Routes, listener: Listener
) -> None:
    """Publishes after every change, until cancelled."""

    async def once() -> bool:
        rows = await store.rows()
        # Looked at after the rows, since the rows are older than what the world says of them.
        if (view := await world.view(rows)) is not None:
            routes.publish(routes_of(rows, view))
        return False

    await run_loop(
        "inference.routes", listener, once, poll_seconds=POLL_SECONDS, resting=store.is_empty
    )
