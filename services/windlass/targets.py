"""The module table: the whole control plane on one page.

A target is a module or the composite `all`. `needs` are the services that a
module calls; they must run in the same process or have an address in `peers`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from windlass.core.config import did_you_mean

if TYPE_CHECKING:
    from windlass.core.app import App


@dataclass(frozen=True)
class Module:
    """One row: where `build(app)` lies, and which services it calls."""

    path: str
    needs: tuple[str, ...] = ()
    # Whether it serves gRPC, so that others may need it.
    service: bool = True


MODULES: dict[str, Module] = {
    "users": Module("windlass.users.module"),
    "rbac": Module("windlass.rbac.module", needs=("users",)),
    "files": Module("windlass.files.module", needs=("jobs", "users")),
    "models": Module("windlass.models.module", needs=("jobs", "inference", "users")),
    "clusters": Module("windlass.clusters.module", needs=("users",)),
    "jobs": Module("windlass.jobs.module", needs=("files", "models", "clusters", "usage", "users")),
    "federation": Module("windlass.federation.module", needs=("clusters", "jobs")),
    "inference": Module(
        "windlass.inference.module", needs=("models", "clusters", "sessions", "users")
    ),
    "tuning": Module("windlass.tuning.module", needs=("models", "usage")),
    "usage": Module("windlass.usage.module"),
    "sessions": Module("windlass.sessions.module", needs=("users", "rbac", "clusters", "jobs")),
    "gateway": Module(
        "windlass.gateway.module",
        needs=(
            "users", "rbac", "files", "models", "jobs", "clusters", "inference", "usage",
            "sessions", "tuning",
        ),
    ),
    # The agent with the process executor, for a machine that is its own cluster.
    "agent": Module("windlass.embedded_agent", needs=("clusters", "jobs"), service=False),
}  # fmt: skip

COMPOSITES: dict[str, tuple[str, ...]] = {"all": tuple(MODULES)}


def expand(targets: Iterable[str]) -> tuple[str, ...]:
    """The modules that a list of targets means, in the table's order.

    Raises ValueError for an unknown target.
    """
    wanted: set[str] = set()
    for target in targets:
        if target not in MODULES and target not in COMPOSITES:
            known = [*COMPOSITES, *MODULES]
            raise ValueError(
                f"unknown target {target!r}{did_you_mean(target, known)}; "
                f"known are {', '.join(known)}"
            )
        wanted.update(COMPOSITES.get(target, (target,)))
    return tuple(name for name in MODULES if name in wanted)


def missing_peers(modules: Iterable[str], peers: Iterable[str]) -> list[tuple[str, str]]:
    """The (module, service) pairs of which nobody says where the service answers."""
    names, known = tuple(modules), set(peers)
    known.update(name for name in names if MODULES[name].service)
    return [(name, need) for name in names for need in MODULES[name].needs if need not in known]


async def build(app: "App", modules: Iterable[str]) -> None:
    """Builds the modules in order; stubs connect lazily, so order matters to nobody."""
    for name in modules:
        await import_module(MODULES[name].path).build(app)
