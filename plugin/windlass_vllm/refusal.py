"""The error of this distribution, its reasons, and those of training an engine."""

REASONS = {
    "block_damaged": "A block of a file is not what the checkpoint says.",
    "checkpoint_closed": "A write failed, or the checkpoint was closed: open it again.",
    "disk_full": "The disk is full; the folder is the version before.",
    "folder_exists": "The folder to make is there already.",
    "folder_protected": "The folder belongs to an engine or to a cache of models.",
    "foreign_file": "The folder holds what is not of the checkpoint.",
    "in_use": "Another process has the folder open.",
    "invalid_header": "A header of safetensors does not describe its file.",
    "invalid_setting": "A setting is outside its bounds.",
    "link_in_folder": "A symbolic or hard link is where a file of the folder should be.",
    "log_damaged": "The log of the checkpoint is cut or damaged.",
    "no_checkpoint": "The folder is no checkpoint by block.",
    "non_finite_gradient": "A gradient is infinite or no number.",
    "not_written": "The operating system refused a write.",
    "state_damaged": "The state of an optimizer cannot be read.",
    "state_foreign": "The state of an optimizer is of another model, version or setting.",
    "tensors_differ": "The live weights are not those of the checkpoint by name, type or shape.",
    "unreadable_model": "The model's folder has no weights that can be kept by block.",
}

TRAINING_REASONS = {
    "adapters_on": "Adapters would lose the base that they were made for.",
    "body_too_large": "A request is larger than is read.",
    "engine_asleep": "The engine sleeps; wake it first.",
    "experts_fused": "A layer's experts are one parameter, which no view can cut.",
    "foreign_code": "The model comes with code of its own.",
    "foreign_handles": "What lies in the folder of an engine was not written by it.",
    "graph_compiled": "On a CPU a compiled graph may hold weights of its own.",
    "guard_tripped": "A held-out measure passed its limit; the version before is back.",
    "idempotency_conflict": "The idempotency key belongs to a job of another request.",
    "invalid_request": "A field of a request is missing or outside its bounds.",
    "job_unknown": "The engine has no such job.",
    "many_api_servers": "The engine has more than one API server.",
    "many_ranks": "The weights are spread over more than one rank.",
    "names_differ": "A parameter of the engine or of Hugging Face has no counterpart.",
    "no_checkpoints": "No folder for checkpoints is set.",
    "no_extension": "vLLM was started without the worker extension.",
    "no_key": "No key of training is set.",
    "no_room": "There is too little memory for files to share the weights.",
    "non_finite_loss": "The loss is infinite or no number.",
    "not_named": "VLLM_PLUGINS does not name the plugin.",
    "not_started": "The engine does not serve yet.",
    "outputs_gone": "What a forward pass computed is kept no longer.",
    "out_of_memory": "The worker found no memory for a step.",
    "quantized": "Weights are of a type that is not trained.",
    "queue_full": "Too many jobs wait already.",
    "shapes_differ": "A parameter has another shape in the engine than in Hugging Face.",
    "stale_handles": "The weights were shared anew since.",
    "state_lost": "The weights are not those that the job before has left.",
    "step_failed": "A step could not be computed.",
    "time_exceeded": "A job took longer than it may.",
    "transposed": "A weight does not lie row by row.",
    "unauthenticated": "The key of training is missing or another.",
    "unknown_model": "transformers cannot build the model.",
    "weights_packed": "The engine computes with packed copies of its weights.",
    "worker_died": "The training worker died.",
}


class Refused(Exception):
    """An operation that changed nothing, or nothing that its log does not mend."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
