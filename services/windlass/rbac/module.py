"""Builds the rbac service."""

from collections.abc import Awaitable, Callable

from windlass.api.rbac.v1 import rbac_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.audit_chain.checkpoints import PURPOSE, CheckpointKey
from windlass.core.app import App
from windlass.core.db.leases import no_rows, run_loop
from windlass.core.exporting.exporter import exports_by
from windlass.core.leaving.eraser import erases
from windlass.core.outbound.receivers import Receivers
from windlass.core.outbound.urls import AddressRules
from windlass.rbac.chains import AuditChains
from windlass.rbac.checkpoints import CheckpointSigner, CheckpointStore
from windlass.rbac.exports.destinations import BUCKET, SYSLOG, WEBHOOK
from windlass.rbac.exports.exporter import AuditExporter
from windlass.rbac.exports.senders.buckets import BucketSender
from windlass.rbac.exports.senders.port import ExportSender
from windlass.rbac.exports.senders.syslog import SyslogSender
from windlass.rbac.exports.senders.webhooks import WebhookSender
from windlass.rbac.exports.service import AuditDestinationsServicer
from windlass.rbac.exports.store import DestinationStore
from windlass.rbac.leaving import CLAIMS
from windlass.rbac.retention import AuditRetention
from windlass.rbac.service import RbacInternalServicer, RbacServicer
from windlass.rbac.store import AuditStore
from windlass.rbac.tables import audit_chains

POLL_SECONDS, DROP_SECONDS = 30.0, 300.0


async def build(app: App) -> None:
    """Constructs and registers rbac."""
    audit, chains = AuditStore(app.database), AuditChains(app.database)
    key = CheckpointKey.derived(app.keyring.derive(PURPOSE))
    checkpoints = CheckpointStore(app.objects, key)
    signer = CheckpointSigner(app.database, audit, checkpoints)
    users = app.clients.stub(users_pb2_grpc.UsersInternalServiceStub)
    days = app.settings.audit.retention_days
    retention = AuditRetention(app.database, audit, checkpoints, app.audit, days=days)
    servicer = RbacServicer(audit, checkpoints, retention)
    app.serve(servicer, rpc.add_RbacServiceServicer_to_server)
    if days:
        dropping = app.wake.listen("audit.retention")
        app.background(
            "audit.retention",
            lambda: run_loop(
                "audit.retention", dropping, retention.once, poll_seconds=DROP_SECONDS
            ),
        )
    signed = no_rows(app.database, audit_chains.c.sequence > audit_chains.c.checkpoint_sequence)
    app.background(
        "audit.checkpoints",
        lambda: run_loop(
            "audit.checkpoints",
            app.wake.listen("audit"),
            signer.once,
            poll_seconds=POLL_SECONDS,
            resting=signed,
        ),
    )
    app.background("audit.exports", _exports(app, audit))
    erases(app, CLAIMS)
    exports_by(app, CLAIMS)
    app.serve(RbacInternalServicer(chains, users), rpc.add_RbacInternalServiceServicer_to_server)


def _exports(app: App, audit: AuditStore) -> Callable[[], Awaitable[None]]:
    """Destinations of exports, and the loop that delivers to them."""
    settings = app.settings.webhooks
    rules = AddressRules(settings.allowed_networks, allow_http=settings.allow_http)
    destinations = DestinationStore(app.database, app.keyring.envelope("audit destinations"))
    app.serve(
        AuditDestinationsServicer(destinations, rules, app.wake),
        rpc.add_AuditDestinationsServiceServicer_to_server,
    )
    receivers = Receivers(rules)
    app.on_stop(receivers.close)
    senders: dict[str, ExportSender] = {
        WEBHOOK: WebhookSender(receivers),
        BUCKET: BucketSender(receivers),
        SYSLOG: SyslogSender(receivers),
    }
    exporter = AuditExporter(app.database, audit, destinations, senders)
    return lambda: exporter.run(app.wake)
