"""Owns the gateway's exchanges with engines: connections, the choice among engines, and lines.

May import the gateway's errors and routes, the tunnel and the kernel.
"""

from windlass.gateway.inference.engines.choice import Engines, Sent
from windlass.gateway.inference.engines.connection import EngineBroken, EngineConnection
from windlass.gateway.inference.engines.direct import DirectWays
from windlass.gateway.inference.engines.errors import ENGINE_FAILED, NoAnswer, engine_failed, failed
from windlass.gateway.inference.engines.lines import EnginePlace, Offers
from windlass.gateway.inference.engines.places import Asker
from windlass.gateway.inference.engines.pool import EngineConnectionPool
from windlass.gateway.inference.engines.shares import Tenant
from windlass.gateway.inference.engines.weight_versions import (
    demand_line,
    named_steps,
    named_version,
)

__all__ = [
    "ENGINE_FAILED",
    "Asker",
    "DirectWays",
    "EngineBroken",
    "EngineConnection",
    "EngineConnectionPool",
    "EnginePlace",
    "Engines",
    "NoAnswer",
    "Offers",
    "Sent",
    "Tenant",
    "demand_line",
    "engine_failed",
    "failed",
    "named_steps",
    "named_version",
]
