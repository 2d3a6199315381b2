"""The catalogue of reasons: `code` of an error in HTTP, `windlass-reason` in gRPC.

A reason is stable, and programs may rely on it. Code writes it as a literal; a test reads every
use and compares it with its entry, and docs/reference/errors.md is made from the entries.

May import nothing but `core.errors`.
"""

from windlass.core.reasons import (
    clusters,
    engines,
    job_ends,
    jobs,
    models,
    requests,
    sign_in,
    tuning,
)
from windlass.core.reasons.reason import ErrorReason

REASONS: dict[str, ErrorReason] = {
    **requests.REASONS,
    **models.REASONS,
    **jobs.REASONS,
    **clusters.REASONS,
    **engines.REASONS,
    **sign_in.REASONS,
    **tuning.REASONS,
}
# `error.code` of jobs that failed: the sentence of each. A job may also end with the reason of an
# input that was refused, such as `file_gone`.
JOB_ENDS: dict[str, str] = job_ends.MEANINGS

__all__ = ["JOB_ENDS", "REASONS", "ErrorReason"]
