"""Every module that declares tables, so that `metadata` is whole."""

from importlib import import_module

STORES = (
    "windlass.core.tokens",
    "windlass.users.tables",
    "windlass.rbac.store",
    "windlass.files.store",
    "windlass.models.store",
    "windlass.jobs.store",
    "windlass.clusters.store",
    "windlass.inference.store",
    "windlass.usage.store",
)


def load_tables() -> None:
    """Imports them all."""
    for name in STORES:
        try:
            import_module(name)
        except ModuleNotFoundError as error:  # until every service is there
            if error.name is None or not name.startswith(error.name):
                raise
