"""The one configuration schema: file, environment, flags; nothing else reads the environment.

Precedence: flags, then `WINDLASS_…` variables (`WINDLASS_HTTP__PORT`), then the
YAML file, then the defaults of the sections.
"""

from windlass.core.config.sections import (
    AgentsSection,
    HttpSection,
    JobsSection,
    KubernetesListenerSection,
    LimitsSection,
    MasterKeySection,
    ObjectsSection,
    QuotasSection,
    TlsSection,
    VaultTransitSection,
)
from windlass.core.config.settings import Settings, is_loopback, load

__all__ = [
    "AgentsSection",
    "HttpSection",
    "JobsSection",
    "KubernetesListenerSection",
    "LimitsSection",
    "MasterKeySection",
    "ObjectsSection",
    "QuotasSection",
    "Settings",
    "TlsSection",
    "VaultTransitSection",
    "is_loopback",
    "load",
]
