"""Reasons of files, models, imports and fetches."""

from windlass.core.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from windlass.core.reasons.reason import reason

REASONS = {
    "content_not_found": reason(
        "The stored content was deleted; upload the file or train the model again.", NotFound
    ),
    "content_mismatch": reason(
        "What arrived differs from the announced size or SHA-256; upload it again.", InvalidArgument
    ),
    "file_too_large": reason("The content exceeds the allowed size; send less.", InvalidArgument),
    "file_in_use": reason(
        "A job that has not ended uses the file; cancel the job first.", FailedPrecondition
    ),
    "invalid_purpose": reason(
        "Files of this purpose cannot be uploaded; the message lists the purposes.",
        InvalidArgument,
    ),
    "invalid_training_file": reason(
        "The training file cannot be trained on; the message names the line and the fault.",
        InvalidArgument,
    ),
    "invalid_validation_file": reason(
        "The validation file cannot be used; the message names the line and the fault.",
        InvalidArgument,
    ),
    "invalid_evaluation_file": reason(
        "The evaluation's file cannot be answered; the message names the line and the fault.",
        InvalidArgument,
    ),
    "upload_incomplete": reason(
        "The content is missing, or differs from what was announced; upload it again.",
        FailedPrecondition,
    ),
    "upload_mismatch": reason(
        "A file differs from the announced size or SHA-256; upload it again.", FailedPrecondition
    ),
    "import_expired": reason(
        "The import was not completed in time; begin again.", FailedPrecondition
    ),
    "invalid_manifest": reason(
        "The list of a model's files is not usable; each needs a path, a size and a SHA-256.",
        InvalidArgument,
    ),
    "invalid_path": reason(
        "A file's path is not a plain relative one; rename the file.", InvalidArgument
    ),
    "duplicate_path": reason(
        "Two files have the same path, or one lies below another; rename one.", InvalidArgument
    ),
    "unsafe_file": reason(
        "Models consist of safetensors or GGUF, JSON, tokenizer files and text; leave the file "
        "out, and convert pickled weights.",
        InvalidArgument,
    ),
    "remote_code": reason(
        "The model brings code of its own, which is never run; take one that transformers knows.",
        InvalidArgument,
    ),
    "incomplete_model": reason(
        "A file that a model needs is missing; save the model with its tokenizer, complete.",
        InvalidArgument,
    ),
    "damaged_weights": reason(
        "A file of weights is damaged; download or save it again.", InvalidArgument
    ),
    "invalid_config": reason(
        "A document of the model holds something that is not allowed; the message names it.",
        InvalidArgument,
    ),
    "unsupported_module": reason(
        "The model makes vectors in a way that no engine knows; the message names the step.",
        InvalidArgument,
    ),
    "model_too_large": reason(
        "The model's files together exceed what one model may have; import a smaller one.",
        InvalidArgument,
    ),
    "invalid_model_id": reason(
        "The id has characters that it may not have, or is too long; choose another.",
        InvalidArgument,
    ),
    "model_exists": reason(
        "A model of this name with other content exists; delete it, or choose another name.",
        AlreadyExists,
    ),
    "model_in_use": reason(
        "Something uses the model; delete or end what the message names first.", FailedPrecondition
    ),
    # OpenAI says 400 where a job names a model that is not there and 404 elsewhere; a model that
    # went after its job was created is no fault of the runner's request.
    "model_not_found": reason(
        "The model does not exist, or the project may not use it; `GET /v1/models` lists those "
        "that it may.",
        NotFound,
        InvalidArgument,
        FailedPrecondition,
        404,
    ),
    "base_model_deleted": reason(
        "The base of the adapter was deleted; import the base again and train anew.",
        FailedPrecondition,
    ),
    "artifacts_deleted": reason(
        "The files of the model were deleted; train or import it again.", FailedPrecondition
    ),
    "invalid_source": reason(
        "The source of a fetch is not `hf://USER/REPOSITORY`; write it so.", InvalidArgument
    ),
    "fetch_not_offered": reason(
        "The server fetches no models; an operator can set `hub.endpoint`.", FailedPrecondition
    ),
    "fetch_not_found": reason("The project has no such fetch; check its id.", NotFound),
    "fetch_over": reason(
        "The fetch has ended and cannot be cancelled; delete the model instead.",
        FailedPrecondition,
    ),
    "too_many_fetches": reason(
        "The project has too many unfinished fetches; wait for one, or cancel it.",
        ResourceExhausted,
    ),
}
