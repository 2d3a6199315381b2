"""Reasons of tuning: what sessions, models and their operations are refused for."""

from windlass.core.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
)
from windlass.core.reasons.reason import reason

REASONS = {
    "unknown_option": reason(
        "A key of user metadata begins with `windlass.` and is no option; take it away.",
        InvalidArgument,
    ),
    "unknown_base_model": reason(
        "Nothing here trains or samples from this model; ask for the supported models.",
        InvalidArgument,
    ),
    "full_parameters_not_offered": reason(
        "Nothing here trains all parameters of a model; ask the operator, or train an adapter.",
        FailedPrecondition,
    ),
    "full_parameters_too_large": reason(
        "All parameters with gradients and moments take more memory than a trainer may have; "
        "train an adapter, or in more processes.",
        FailedPrecondition,
    ),
    "engines_not_offered": reason(
        "This server does not know the inference service, so that no session trains engines; set "
        "`peers.inference` and `peers.gateway` for the target `tuning`.",
        FailedPrecondition,
    ),
    "not_in_engine": reason(
        "A run that trains an engine has no such thing; the message says what there is instead.",
        FailedPrecondition,
        InvalidArgument,
    ),
    "several_losses": reason(
        "A step in an engine has one loss; take an `optim_step` before another one.",
        InvalidArgument,
    ),
    "no_gradients": reason(
        "A step in an engine needs a `forward_backward` before it.", InvalidArgument
    ),
    "step_too_large": reason(
        "The datums of a step in an engine take too many bytes; take a step after fewer of them.",
        InvalidArgument,
    ),
    "unfit_optimizer": reason(
        "The optimizer is one of adapters; all parameters are trained by adamw.", InvalidArgument
    ),
    "not_for_sampler": reason(
        "The checkpoint is a state to train on from; save one for samplers.", InvalidArgument
    ),
    "not_a_base_model": reason(
        "The model is an adapter or has no files here; name the one that the adapter is of.",
        FailedPrecondition,
    ),
    "session_finished": reason(
        "The session has finished and takes nothing more; begin another.", FailedPrecondition
    ),
    "run_deleted": reason(
        "The model was deleted; its checkpoints are still there.", FailedPrecondition
    ),
    "result_expired": reason(
        "The result was kept for its time and is gone; ask again.", FailedPrecondition
    ),
    "body_differs": reason(
        "Another request has this sequence number; a repeat must be the same.", AlreadyExists
    ),
    "log_gone": reason(
        "The log of the run does not reach this operation any more, and no state that was saved "
        "does; name a later one, or go on from a checkpoint.",
        FailedPrecondition,
    ),
    "run_is_copy": reason(
        "A copy of a checkpoint is in a model that takes nothing; make another one of the copy.",
        FailedPrecondition,
    ),
    "too_many_copies": reason(
        "The project has as many copies of checkpoints as it may; delete some.", ResourceExhausted
    ),
    "checkpoint_damaged": reason(
        "A file of a checkpoint is not what was saved; it is not copied.", FailedPrecondition
    ),
    "still_being_made": reason(
        "A copy or an archive takes longer than one request; ask for it again.", Unavailable
    ),
    "invalid_loss_graph": reason(
        "A loss is made of what is not allowed, or is too large; the message says where.",
        InvalidArgument,
    ),
    "too_many_losses": reason(
        "The project's sessions have as many losses as they may; finish some.", ResourceExhausted
    ),
    "too_many_examples": reason(
        "A computation has no sequences, or more than one operation takes; send it in parts.",
        InvalidArgument,
    ),
    "not_carried_out": reason(
        "The operation waits, or ended before it was carried out; name another.",
        FailedPrecondition,
    ),
    "too_many_replays": reason(
        "The project has a replay or a fork that runs; ask again when it has ended.",
        ResourceExhausted,
    ),
    "replay_refused": reason(
        "The trainer takes no further run just now, or not this state; ask again later.",
        Unavailable,
    ),
    "trainer_lost": reason("The trainer ended meanwhile; ask again.", Unavailable),
}
