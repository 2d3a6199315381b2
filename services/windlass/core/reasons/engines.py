"""Reasons of inference: the gateway's, and the built-in engine's; other engines have their own."""

from windlass.core.errors import FailedPrecondition, NotFound, ResourceExhausted, Unavailable
from windlass.core.reasons.reason import reason

REASONS = {
    "starting": reason(
        "The state of the engines is not known yet; try again in a second.", Unavailable
    ),
    "model_not_ready": reason(
        "No engine serves the model yet; try again, the message says what is waited for.", 503
    ),
    "engines_busy": reason(
        "The engines of the model answer as many requests as they can, and others wait before this "
        "one; try again after `Retry-After`.",
        429,
        503,
    ),
    "serving_not_found": reason(
        "The model is served on demand; `windlass models activate` has engines of it run.",
        NotFound,
    ),
    "models_not_kept": reason(
        "A cluster cannot be given the model's files; the message says why.", FailedPrecondition
    ),
    "too_many_prefetches": reason(
        "The project has as many unfinished prefetches as it may; wait until some have ended.",
        ResourceExhausted,
    ),
    "training_not_enabled": reason(
        "The engine of the model may not be trained; `windlass models activate MODEL --training "
        "hogwild` has one that may.",
        FailedPrecondition,
    ),
    "engine_held": reason(
        "A session of tuning trains the model's engine; wait until that session has ended.",
        FailedPrecondition,
    ),
    "feed_not_found": reason(
        "The model has no feed; `windlass engines feed set` gives it one.", NotFound
    ),
    "key_not_found": reason(
        "A feed may take answers of live keys of its own project alone; `windlass keys list` has "
        "them.",
        NotFound,
    ),
    "zero_data_retention": reason(
        "The project keeps no answers, not even for a feed; who administers the organization can "
        "set the project's `data_retention` to `none`.",
        FailedPrecondition,
    ),
    "sealed_project": reason(
        "Answers of a feed are not sealed, so a project with a key of its own keeps none.",
        FailedPrecondition,
    ),
    "grading_unavailable": reason(
        "No gateway is there that grades answers; the operator has to name it in `peers`.",
        FailedPrecondition,
    ),
    "training_not_found": reason("The project has no such training of an engine.", NotFound),
    "run_not_found": reason(
        "The run that engines should follow is none that the project may read.", NotFound
    ),
    "stack_not_found": reason(
        "There is no such serving stack; `windlass stacks list` has those that there are.", NotFound
    ),
    "stack_in_use": reason(
        "Models are adopted from the serving stack; delete them first.", FailedPrecondition
    ),
    "stack_unavailable": reason(
        "The serving stack that has the model does not answer; try again later.", 503
    ),
    "stack_lost_model": reason(
        "The serving stack has the model no more; its operator knows why.", 503
    ),
    "wrong_model_task": reason(
        "The model scores answers and was asked to write, or the other way round; use the route "
        "that the message names.",
        400,
    ),
    "context_length_exceeded": reason(
        "Prompt and completion do not fit into the model's context; shorten one of them.", 400
    ),
    "chat_template_missing": reason(
        "The model has no chat template; use /v1/completions, or import it with one.", 400
    ),
    "chat_template_too_costly": reason(
        "The model's chat template takes too long to render; import the model with a simpler one.",
        400,
    ),
    "invalid_json_schema": reason(
        "An answer cannot be held to the schema; simplify it as the message says.", 400
    ),
    "engine_overloaded": reason("The engine has too much to do; try again later.", 503),
    "engine_asleep": reason("The engine sleeps; try again, it wakes.", 404),
    "weight_version_mismatch": reason(
        "The engine's weights are of another version than the request demands.", 409
    ),
    "weights_in_use": reason(
        "Requests that are answered with the weights before have not ended; try again later.", 503
    ),
    "engine_stopped": reason("The engine has stopped; try again, another is started.", 503),
    "engine_error": reason("The engine failed to answer; its log says why.", 500),
    "engine_failed": reason("The engine broke off its answer; try again.", 502),
    # To the gateway, which loads adapters into engines.
    "adapter_exists": reason("An adapter of this name is loaded already; unload it first.", 400),
    "adapter_not_found": reason("No adapter of this name is loaded; load it first.", 404),
    "adapters_in_use": reason("All places for adapters are in use; try again later.", 503),
    "invalid_adapter": reason("The adapter does not fit the engine's model.", 400),
}
