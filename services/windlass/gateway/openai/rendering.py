"""Messages of the contract as OpenAI's JSON."""

from typing import Any, Literal

import orjson

from windlass.api.files.v1 import files_pb2
from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.api.runner.v1 import runner_pb2
from windlass.backends import methods
from windlass.core.errors import InvalidArgument

Json = dict[str, Any]

_FILE_STATUS = {
    files_pb2.FILE_STATUS_UPLOADED: "uploaded",
    files_pb2.FILE_STATUS_PROCESSED: "processed",
    files_pb2.FILE_STATUS_ERROR: "error",
}
_LEVEL = {
    runner_pb2.LEVEL_INFO: "info",
    runner_pb2.LEVEL_WARN: "warn",
    runner_pb2.LEVEL_ERROR: "error",
}
# OpenAI knows no paused job and no stage between queued and running.
_JOB_STATUS = {
    pb.JOB_STATE_VALIDATING: "validating_files",
    pb.JOB_STATE_QUEUED: "queued",
    pb.JOB_STATE_STARTING: "queued",
    pb.JOB_STATE_PAUSED: "queued",
    pb.JOB_STATE_RUNNING: "running",
    pb.JOB_STATE_FINALIZING: "running",
    pb.JOB_STATE_PAUSING: "running",
    pb.JOB_STATE_CANCELLING: "running",
    pb.JOB_STATE_SUCCEEDED: "succeeded",
    pb.JOB_STATE_FAILED: "failed",
    pb.JOB_STATE_CANCELLED: "cancelled",
}

ENDED = (pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED)
_METRICS = (
    "step", "train_loss", "train_mean_token_accuracy", "valid_loss",
    "valid_mean_token_accuracy", "full_valid_loss", "full_valid_mean_token_accuracy",
    # Of methods that learn from rewards or preferences, by the names that events have.
    "train_mean_reward", "valid_mean_reward", "full_valid_mean_reward",
    "train_reward_accuracy", "valid_reward_accuracy",
)  # fmt: skip


def states_of(status: str) -> list[pb.JobState.ValueType]:
    """The states of jobs that OpenAI's status stands for; raises InvalidArgument."""
    states = [state for state, one in _JOB_STATUS.items() if one == status]
    if not states:
        known = ", ".join(dict.fromkeys(_JOB_STATUS.values()))
        raise InvalidArgument(f"status must be one of {known}.", param="status")
    return states


def page(items: list[Json], has_more: bool = False) -> Json:
    """A list, with the ids that a cursor needs."""
    return {
        "object": "list",
        "data": items,
        "has_more": has_more,
        "first_id": items[0].get("id") if items else None,
        "last_id": items[-1].get("id") if items else None,
    }


def render_file(file: files_pb2.File) -> Json:
    """A file object; what OpenAI has no word for is under `windlass`."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "expires_at": file.expires_at or None,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": _FILE_STATUS.get(file.status, "uploaded"),
        "status_details": file.status_details or None,
        "windlass": {
            "sha256": file.sha256.hex(),
            "format": file.dataset.format or None,
            "examples": file.dataset.examples or None,
            "provenance": _provenance(file),
        },
    }


def _provenance(file: files_pb2.File) -> Json | None:
    """Returns what the file was converted from, as its uploader said."""
    if not file.HasField("provenance"):
        return None
    said = file.provenance
    return {field.name: getattr(said, field.name) for field in said.DESCRIPTOR.fields}


def render_model(model: models_pb2.Model) -> Json:
    """A model object; what OpenAI has no word for is under `windlass`."""
    kind = models_pb2.ModelKind.Name(model.kind).removeprefix("MODEL_KIND_").lower()
    return {
        "id": model.id,
        "object": "model",
        "created": model.created_at,
        "owned_by": model.owned_by or model.organization_id or "windlass",
        "windlass": {
            "kind": kind,
            "base_model": model.base_model or None,
            "parent": model.parent or None,
            "project_id": model.project_id or None,
            "version_id": model.version_id,
            "bytes": model.bytes,
            "job_id": model.job_id or None,
            "is_checkpoint": model.is_checkpoint,
            "task": models_pb2.ModelTask.Name(model.task).removeprefix("MODEL_TASK_").lower(),
            "warnings": list(model.warnings),
            "footprint": _footprint(model),
            "quantization": _quantization(model),
            "formats": {
                "tools": model.formats.tools or None,
                "reasoning": model.formats.reasoning or None,
            },
            "preset": _preset(model),
        },
    }


def _preset(model: models_pb2.Model) -> Json | None:
    if not model.HasField("preset"):
        return None
    said = model.preset
    arguments = {kind: orjson.loads(values) for kind, values in sorted(said.arguments.items())}
    return {
        "name": said.name,
        "lora_targets": list(said.lora_targets),
        "arguments": arguments,
    }


def _quantization(model: models_pb2.Model) -> Json | None:
    if not model.HasField("quantization"):
        return None
    return {"method": model.quantization.method, "bits": model.quantization.bits or None}


def _footprint(model: models_pb2.Model) -> Json | None:
    if not model.HasField("footprint"):
        return None
    said = model.footprint
    return {field.name: getattr(said, field.name) for field in said.DESCRIPTOR.fields}


def render_job(job: pb.Job) -> Json:
    """A fine-tuning job object."""
    ended = job.state in ENDED
    hyperparameters = orjson.loads(job.hyperparameters or b"{}")
    return {
        "id": job.id,
        "object": "fine_tuning.job",
        "created_at": job.created_at,
        "finished_at": job.finished_at or None,
        "estimated_finish": None if ended else job.estimated_finish or None,
        "error": _job_error(job),
        "fine_tuned_model": job.fine_tuned_model or None,
        "hyperparameters": hyperparameters,
        "integrations": orjson.loads(job.integrations or b"[]"),
        "metadata": dict(job.metadata),
        "method": _method(job, hyperparameters),
        "model": job.model,
        "organization_id": job.organization_id,
        "result_files": list(job.result_files),
        "seed": job.seed,
        "status": _JOB_STATUS.get(job.state, "queued"),
        "trained_tokens": job.trained_tokens if ended else None,
        "training_file": job.training_file,
        "validation_file": job.validation_file or None,
        "user_provided_suffix": job.suffix or None,
        "windlass": _job_extra(job),
    }


def _method(job: pb.Job, hyperparameters: Json) -> Json:
    kind = methods.type_of(job.method)
    grader = {"grader": orjson.loads(job.grader)} if job.grader else {}
    return {"type": kind, kind: {**grader, "hyperparameters": hyperparameters}}


def _job_error(job: pb.Job) -> Json | None:
    if not job.HasField("error"):
        return None
    error = job.error
    return {"code": error.code, "message": error.message, "param": error.param or None}


def _job_extra(job: pb.Job) -> Json:
    progress = job.progress
    return {
        "state": pb.JobState.Name(job.state).removeprefix("JOB_STATE_").lower(),
        "attempt": job.attempt,
        "generation": job.generation,
        "cluster": job.cluster_id or None,
        "queue": _queue(job.queue),
        "progress": {
            "step": progress.step,
            "total_steps": progress.total_steps,
            "tokens_per_second": progress.tokens_per_second,
            "train_loss": _known(progress, "train_loss"),
            "train_mean_reward": _known(progress, "train_mean_reward"),
            "phase": progress.phase or None,
            "trained_tokens": job.trained_tokens,
        },
        "method": job.method,
        "backend": job.backend,
        "framework": job.framework or None,
        "project_id": job.project_id,
        "evaluation": _evaluation(job.evaluation) if job.HasField("evaluation") else None,
    }


def _known(progress: pb.Progress, field: Literal["train_loss", "train_mean_reward"]) -> Any:
    return getattr(progress, field) if progress.HasField(field) else None


def _evaluation(evaluation: pb.JobEvaluation) -> Json:
    result = evaluation.result
    return {
        "file": evaluation.file,
        "grader": orjson.loads(evaluation.grader),
        "max_examples": evaluation.max_examples,
        "max_completion_tokens": evaluation.max_completion_tokens,
        "temperature": evaluation.temperature,
        "result": {
            "examples": result.examples,
            "base": _score(result.base),
            "fine_tuned": _score(result.fine_tuned),
            "wins": result.wins,
            "ties": result.ties,
            "losses": result.losses,
        }
        if evaluation.HasField("result")
        else None,
    }


def _score(score: runner_pb2.EvaluationScore) -> Json:
    return {"mean_reward": score.mean_reward, "ungraded": score.ungraded}


def render_explanation(why: pb.Explanation) -> Json:
    """Returns why a job is where it is, or why it waits."""
    return {
        "object": "fine_tuning.job.explanation",
        "job_id": why.job_id,
        "state": pb.JobState.Name(why.state).removeprefix("JOB_STATE_").lower(),
        "summary": why.summary,
        "cluster": why.cluster_id or None,
        "queue": _queue(why.queue),
        "decided_at": why.decided_at_ms // 1000 or None,
        "verdicts": [
            {
                "cluster": verdict.cluster_id,
                "name": verdict.cluster_name,
                "chosen": verdict.chosen,
                "fits": verdict.fits,
                "reason": verdict.reason,
                "points": dict(sorted(verdict.points.items())),
            }
            for verdict in why.verdicts
        ],
    }


def _queue(queue: pb.Queue) -> Json:
    return {
        "name": queue.name or None,
        "position": queue.position or None,
        "reason": queue.reason or None,
    }


def render_event(event: pb.Event) -> Json:
    """An event of a job."""
    return {
        "id": event.id,
        "object": "fine_tuning.job.event",
        "created_at": event.created_at_ms // 1000,
        "level": _LEVEL.get(event.level, "info"),
        "message": event.message,
        "type": event.type or "message",
        "data": orjson.loads(event.data) if event.data else None,
    }


def render_checkpoint(checkpoint: pb.Checkpoint, job_id: str) -> Json:
    """A checkpoint of a job."""
    values = {"step": float(checkpoint.step_number), **checkpoint.metrics}
    return {
        "id": checkpoint.id,
        "object": "fine_tuning.job.checkpoint",
        "created_at": checkpoint.created_at,
        "fine_tuned_model_checkpoint": checkpoint.fine_tuned_model_checkpoint,
        "fine_tuning_job_id": job_id,
        "metrics": {name: values[name] for name in _METRICS if name in values},
        "step_number": checkpoint.step_number,
    }
