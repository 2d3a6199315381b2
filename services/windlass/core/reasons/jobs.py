"""Reasons of jobs, their attempts and their webhooks."""

from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.core.reasons.reason import reason

REASONS = {
    # Creating one.
    "file_not_found": reason(
        "The project has no such file; upload it, or check its id.", InvalidArgument
    ),
    "invalid_file_purpose": reason(
        "The file was uploaded for another purpose; upload it with `fine-tune`.", InvalidArgument
    ),
    "model_not_tunable": reason(
        "The model cannot be fine-tuned; the message says why and which can.", InvalidArgument
    ),
    "unknown_model_type": reason(
        "No trainer of the project loads models of this type; train it where an image of the "
        "operator's own knows it.",
        InvalidArgument,
    ),
    "model_not_complete": reason(
        "The model is an adapter where a complete model is needed; name its base, or a model that "
        "was exported as merged.",
        InvalidArgument,
    ),
    "exceeds_machines": reason(
        "No machine is large enough for the job, even if it were empty; ask for less.",
        InvalidArgument,
    ),
    "exceeds_quota": reason(
        "No queue of the project can ever hold the job; ask for less, or have the quota raised.",
        InvalidArgument,
    ),
    "library_not_installed": reason(
        "No cluster of the project has a package that a setting of the job needs; leave it out, or "
        "have the package installed where jobs run.",
        InvalidArgument,
    ),
    "tracker_not_allowed": reason(
        "Jobs may not report to this tracker; an operator can add it to `tracking.allowed`.",
        InvalidArgument,
    ),
    "secret_not_found": reason(
        "The project has no secret for the tracker; store it with `windlass secrets put`.",
        InvalidArgument,
    ),
    # Steering one.
    "job_not_cancellable": reason(
        "The job has ended already; there is nothing to cancel.", FailedPrecondition
    ),
    "job_not_pausable": reason(
        "Only a job that waits or runs can be paused; look at its status.", FailedPrecondition
    ),
    "job_not_paused": reason(
        "Only a paused job can be resumed; look at its status.", FailedPrecondition
    ),
    "job_pausing": reason(
        "The job is still saving its state; resume it once it is paused.", FailedPrecondition
    ),
    # To runners and their agents.
    "attempt_superseded": reason(
        "The attempt has ended or was replaced by another; the runner must stop.",
        FailedPrecondition,
    ),
    "artifact_committed": reason(
        "The artifact was committed with other files; it cannot change.", FailedPrecondition
    ),
    "artifact_missing": reason(
        "The attempt ended without its final model; the job is tried again or fails.",
        FailedPrecondition,
    ),
    "not_planned": reason(
        "The job has no configuration yet; ask again once it is queued.", FailedPrecondition
    ),
    "no_model_grader": reason(
        "The job has no grader that asks models; its runner must not ask for one.",
        FailedPrecondition,
    ),
    "file_gone": reason(
        "A file of the job has expired or was deleted; upload it and create the job again.",
        FailedPrecondition,
    ),
    "model_changed": reason(
        "The job's model was replaced since the job was created; create the job again.",
        FailedPrecondition,
    ),
    # Webhooks.
    "too_many_webhooks": reason(
        "The project has as many webhooks as it may; delete one first.", FailedPrecondition
    ),
    "too_many_destinations": reason(
        "The organization exports its audit log to as many destinations as it may; delete one "
        "first.",
        FailedPrecondition,
    ),
    "webhook_not_allowed": reason(
        "The URL does not lead to an address that webhooks may have; use a public one over https, "
        "or have it allowed in `webhooks.allowed_networks`.",
        InvalidArgument,
    ),
    "webhook_unreachable": reason(
        "The sample did not arrive; the message says how the receiver answered.", InvalidArgument
    ),
}
