"""Builds erasures, a part of users."""

from windlass.api.users.v1 import erasures_pb2_grpc as rpc
from windlass.audit_chain.checkpoints import PURPOSE, CheckpointKey
from windlass.core.app import App
from windlass.core.db.leases import run_loop
from windlass.core.leaving.claims import Prepare
from windlass.core.leaving.eraser import TOPIC, erases
from windlass.users.leaving.claims import CLAIMS
from windlass.users.leaving.conductor import ErasureConductor
from windlass.users.leaving.report import ReportSigner
from windlass.users.leaving.service import ErasuresServicer
from windlass.users.leaving.store import ErasureStore
from windlass.users.store import TenantStore

POLL_SECONDS = 5.0


def build(app: App, tenants: TenantStore, prepare: Prepare) -> None:
    """Constructs and registers the servicer and the loops; `prepare` comes before an erasure."""
    grace_seconds = app.settings.leaving.grace_seconds
    erasures = ErasureStore(app.database, grace_seconds=grace_seconds)
    signer = ReportSigner(CheckpointKey.derived(app.keyring.derive(PURPOSE)))
    app.serve(
        ErasuresServicer(tenants, erasures, signer, app.wake),
        rpc.add_ErasuresServiceServicer_to_server,
    )
    conductor, listener = ErasureConductor(app.database, erasures, signer), app.wake.listen(TOPIC)

    async def once() -> bool:
        worked = await conductor.once()
        if worked:
            app.wake.touch(TOPIC)
        return worked

    app.background(
        "users.leaving",
        lambda: run_loop(
            "users.leaving",
            listener,
            once,
            poll_seconds=POLL_SECONDS,
            resting=conductor.has_none,
        ),
    )
    erases(app, CLAIMS, prepare)
