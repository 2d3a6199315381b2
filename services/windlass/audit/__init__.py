"""The way of audit events from the boundary to rbac: kept on disk, summed where they flood, sent.

May import the contract and the kernel.
"""

from windlass.audit.queue import RESOURCE_LENGTH, AuditQueue

__all__ = ["RESOURCE_LENGTH", "AuditQueue"]
