"""The one configuration schema: file, environment, flags; nothing else reads the environment.

Precedence: flags, then `WINDLASS_…` variables (`WINDLASS_HTTP__PORT`), then the
YAML file, then the defaults of the sections.

May import nothing else of Windlass.
"""

from windlass.core.config.database_url import driver_url, libpq_url
from windlass.core.config.keys import (
    AwsKmsSection,
    ExternalKeysSection,
    MasterKeySection,
    Pkcs11Section,
    VaultTransitSection,
)
from windlass.core.config.loading import load, unread_variables
from windlass.core.config.mistakes import ConfigError, did_you_mean
from windlass.core.config.quotas import QuotasSection
from windlass.core.config.sections import (
    AgentsSection,
    HttpSection,
    JobsSection,
    KubernetesListenerSection,
    LimitsSection,
    ObjectsSection,
    SignInSection,
    TlsSection,
    WebhooksSection,
)
from windlass.core.config.settings import Settings, is_loopback

__all__ = [
    "AgentsSection",
    "AwsKmsSection",
    "ConfigError",
    "ExternalKeysSection",
    "HttpSection",
    "JobsSection",
    "KubernetesListenerSection",
    "LimitsSection",
    "MasterKeySection",
    "ObjectsSection",
    "Pkcs11Section",
    "QuotasSection",
    "Settings",
    "SignInSection",
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
