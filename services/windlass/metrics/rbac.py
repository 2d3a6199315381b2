"""The audit log"""

from prometheus_client import Counter

AUDIT_DROPPED = Counter("windlass_audit_dropped_total", "Audit events dropped by the retention.")
AUDIT_EXPORTS = Counter(
    "windlass_audit_exports_total",
    "Audit events delivered to destinations, and deliveries that failed.",
    ["kind", "outcome"],
)
AUDIT_FAULTS = Counter(
    "windlass_audit_faults_total",
    "Audit chains found broken when a checkpoint was due, again every five minutes.",
)
