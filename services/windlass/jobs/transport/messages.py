"""Domain records of jobs as messages of the contract."""

import json
from typing import Any

import msgspec

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.runner.v1 import runner_pb2
from windlass.backends.hyperparameters import unresolved
from windlass.jobs.domain.evaluation import Evaluation, EvaluationResult
from windlass.jobs.domain.job import Checkpoint, Job, JobEvent
from windlass.jobs.scheduling.explaining import Explanation
from windlass.jobs.scheduling.runtimes import OfferedRuntime
from windlass.jobs.storage.logs import Chunk


def encode(value: Any) -> bytes:
    """A JSON document."""
    return json.dumps(value, separators=(",", ":")).encode()


def job(record: Job) -> pb.Job:
    """A job."""
    spec, plan = record.spec, record.plan
    message = pb.Job(
        id=record.id,
        organization_id=record.organization_id,
        project_id=record.project_id,
        model=spec.model,
        training_file=spec.training_file,
        validation_file=spec.validation_file,
        suffix=spec.suffix,
        seed=spec.seed,
        method=spec.method,
        hyperparameters=encode(_hyperparameters(record)),
        grader=encode(spec.grader) if spec.grader else b"",
        metadata=spec.metadata,
        integrations=encode(spec.integrations),
        created_at=record.created_at_ms // 1000,
        finished_at=record.finished_at_ms // 1000,
        estimated_finish=record.estimated_finish_at_ms // 1000,
        fine_tuned_model=record.fine_tuned_model,
        result_files=record.result_files,
        trained_tokens=record.trained_tokens,
        state=pb.JobState.ValueType(record.state),
        attempt=record.attempt,
        generation=record.generation,
        cluster_id=record.cluster_id,
        queue=pb.Queue(**msgspec.to_builtins(record.queue)),
        backend=spec.backend,
        num_nodes=1 if plan is None else plan.num_nodes,
        resources_per_node=pb.Resources(**msgspec.to_builtins(spec.resources)),
        progress=pb.Progress(
            step=record.progress.step,
            total_steps=record.progress.total_steps,
            tokens_per_second=record.progress.tokens_per_second,
            phase=record.progress.phase,
            train_loss=record.progress.train_loss,
            train_mean_reward=record.progress.train_mean_reward,
        ),
    )
    if spec.evaluation is not None:
        message.evaluation.CopyFrom(_evaluation(spec.evaluation, record.evaluation))
    if plan is not None:
        message.schema_version = plan.schema_version
        message.config = encode(plan.config)
        message.framework = plan.framework
    if record.failure is not None:
        message.error.CopyFrom(pb.JobError(**msgspec.to_builtins(record.failure)))
    return message


def _evaluation(asked: Evaluation, result: EvaluationResult | None) -> pb.JobEvaluation:
    message = pb.JobEvaluation(**msgspec.to_builtins(asked) | {"grader": encode(asked.grader)})
    if result is not None:
        message.result.CopyFrom(runner_pb2.EvaluationResult(**msgspec.to_builtins(result)))
    return message


def _hyperparameters(record: Job) -> dict[str, Any]:
    """Returns the hyperparameters, with the numbers that "auto" came to once they are known."""
    spec = record.spec
    if spec.document:
        return spec.hyperparameters
    resolved = record.plan.hyperparameters if record.plan else {}
    return resolved or unresolved(spec.method, spec.hyperparameters)


def runtime(record: OfferedRuntime) -> pb.Runtime:
    """The runtime as a message."""
    return pb.Runtime(
        name=record.name,
        framework=record.framework,
        schema_version=record.schema_version,
        methods=record.methods,
        clusters=[
            pb.RuntimeCluster(
                id=cluster.id, name=cluster.name, executor=cluster.executor, gpus=cluster.gpus
            )
            for cluster in record.clusters
        ],
    )


def explanation(record: Job, why: Explanation) -> pb.Explanation:
    """Returns why a job is where it is."""
    return pb.Explanation(
        job_id=record.id,
        state=pb.JobState.ValueType(record.state),
        summary=why.summary,
        cluster_id=record.cluster_id,
        queue=pb.Queue(**msgspec.to_builtins(record.queue)),
        decided_at_ms=why.decided.at_ms,
        verdicts=[pb.Verdict(**msgspec.to_builtins(one)) for one in why.decided.verdicts],
    )


def event(record: JobEvent) -> pb.Event:
    """An event."""
    return pb.Event(
        id=record.id,
        created_at_ms=record.at_ms,
        level=runner_pb2.Level.ValueType(record.level),
        message=record.message,
        type="message" if record.metrics is None else "metrics",
        data=b"" if record.metrics is None else encode(record.metrics),
    )


def checkpoint(record: Checkpoint) -> pb.Checkpoint:
    """A checkpoint."""
    return pb.Checkpoint(
        id=record.id,
        created_at=record.created_at_ms // 1000,
        fine_tuned_model_checkpoint=record.model_name,
        step_number=record.step,
        metrics=record.metrics,
    )


def log_chunk(record: Chunk) -> pb.LogChunk:
    """A part of a log."""
    return pb.LogChunk(offset=record.position, data=record.data)
