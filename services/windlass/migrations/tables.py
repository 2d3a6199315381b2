"""Every module that declares tables, so that `metadata` is whole; and who claims them."""

from importlib import import_module

from windlass.core.leaving.claims import LeavingClaims

STORES = (
    "windlass.core.rpc.tokens",
    "windlass.core.keyring.keyring",
    "windlass.core.keyring.seals",
    "windlass.core.leaving.tables",
    "windlass.core.exporting.tables",
    "windlass.core.quotas",
    "windlass.users.tables",
    "windlass.users.client_demands.tables",
    "windlass.users.session_strength.tables",
    "windlass.users.identity.tables",
    "windlass.users.mail.tables",
    "windlass.rbac.tables",
    "windlass.files.store",
    "windlass.models.store",
    "windlass.jobs.storage.store",
    "windlass.jobs.transport.stream_quota",
    "windlass.clusters.storage.clusters",
    "windlass.inference.store",
    "windlass.inference.prefetches.store",
    "windlass.inference.trainings.store",
    "windlass.inference.feeds.store",
    "windlass.usage.store",
    "windlass.usage.allowances",
    "windlass.sessions.tunnel.store",
    "windlass.federation.tables",
    "windlass.tuning.storage.tables",
    "windlass.tuning.seats.tables",
    "windlass.tuning.pods.tables",
    "windlass.tuning.publishing.tables",
)


def load_tables() -> None:
    """Imports them all."""
    for name in STORES:
        import_module(name)


# What becomes of each table and object when a tenant leaves.
CLAIMS = (
    "windlass.core.leaving.kernel",
    "windlass.users.leaving.claims",
    "windlass.rbac.leaving",
    "windlass.files.leaving",
    "windlass.models.removal.leaving",
    "windlass.jobs.leaving",
    "windlass.clusters.leaving",
    "windlass.inference.leaving",
    "windlass.usage.leaving",
    "windlass.sessions.leaving",
    "windlass.federation.leaving",
    "windlass.tuning.leaving",
)


def load_claims() -> tuple[LeavingClaims, ...]:
    """Imports them all."""
    return tuple(import_module(name).CLAIMS for name in CLAIMS)
