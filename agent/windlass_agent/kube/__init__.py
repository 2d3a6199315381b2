"""The Kubernetes API: one session, objects as JSON, and informers of what is watched.

It imports the kernel, and of the agent `control_plane` alone.
"""

from windlass_agent.kube.access import Access, NoAccess
from windlass_agent.kube.client import Kube
from windlass_agent.kube.errors import (
    ApiServerUnavailable,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    ResourceNotFound,
    Unauthorized,
)
from windlass_agent.kube.informer import Informer

__all__ = [
    "Access",
    "ApiServerUnavailable",
    "Conflict",
    "Expired",
    "Forbidden",
    "Informer",
    "Invalid",
    "Kube",
    "KubeError",
    "NoAccess",
    "ResourceNotFound",
    "Unauthorized",
]
