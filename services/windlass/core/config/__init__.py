"""The one configuration schema: file, environment, flags; nothing else reads the environment.

Precedence: flags, then `WINDLASS_…` variables (`WINDLASS_HTTP__PORT`), then the
YAML file, then the defaults of the sections.

May import nothing else of Windlass.
"""

from windlass.core.config.database_url import driver_url, libpq_url
from windlass.core.config.loading import load, unread_variables
from windlass.core.config.mistakes import ConfigError, did_you_mean
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
    WebhooksSection,
)
from windlass.core.config.settings import Settings, is_loopback

__all__ = [
    "AgentsSection",
    "ConfigError",
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
    "WebhooksSection",
    "did_you_mean",
    "driver_url",
    "is_loopback",
    "libpq_url",
    "load",
    "unread_variables",
]
