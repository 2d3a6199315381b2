"""Export of audit logs to destinations of their organizations: OCSF as JSON lines, at least once.

May import the store of the audit log, and the kernel.
"""
