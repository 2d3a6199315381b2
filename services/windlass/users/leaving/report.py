"""The signed report of an erasure: what was removed, by service, with ids alone."""

from windlass.audit_chain.checkpoints import CheckpointKey
from windlass.users.leaving.domain import Erasure

TYPE = "windlass-erasure-report"


class ReportSigner:
    """Signs by the key of the audit log's checkpoints, whose public half an auditor has."""

    def __init__(self, key: CheckpointKey):
        self.key = key

    def sign(self, erasure: Erasure, *, finished_at: int) -> str:
        """A compact JWS."""
        return self.key.sign_claims(
            TYPE,
            {
                "erasure_id": erasure.id,
                "organization_id": erasure.organization_id,
                "project_id": erasure.project_id,
                "asked_by": erasure.asked_by,
                "asked_at": erasure.asked_at,
                "erased_at": finished_at,
                "services": {
                    step.service: {
                        "rows": dict(step.rows),
                        "objects": step.objects,
                        "bytes": step.bytes,
                    }
                    for step in erasure.steps
                },
            },
        )
