"""The Kubernetes API: one session, objects as JSON, and mirrors of what is watched."""

from windlass_agent.kube.access import Access, NoAccess
from windlass_agent.kube.client import Kube
from windlass_agent.kube.errors import (
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from windlass_agent.kube.mirror import Mirror

__all__ = [
    "Access",
    "Conflict",
    "Expired",
    "Forbidden",
    "Invalid",
    "Kube",
    "KubeError",
    "Mirror",
    "NoAccess",
    "NotFound",
    "Unauthorized",
    "Unavailable",
]
