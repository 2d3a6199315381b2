"""Every module that declares tables, so that `metadata` is whole."""

from importlib import import_module

STORES = (
    "windlass.core.rpc.tokens",
    "windlass.core.keyring.keyring",
    "windlass.core.quotas",
    "windlass.users.tables",
    "windlass.rbac.store",
    "windlass.files.store",
    "windlass.models.store",
    "windlass.jobs.storage.store",
    "windlass.jobs.transport.stream_quota",
    "windlass.clusters.storage.clusters",
    "windlass.inference.store",
    "windlass.inference.prefetches.store",
    "windlass.usage.store",
    "windlass.usage.allowances",
    "windlass.sessions.tunnel.store",
    "windlass.federation.tables",
)


def load_tables() -> None:
    """Imports them all."""
    for name in STORES:
        import_module(name)
