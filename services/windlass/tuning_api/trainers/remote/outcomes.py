"""Outcomes and samples as messages, and back; pure."""

from windlass.api.trainer.v1 import trainer_pb2 as pb
from windlass.tuning_api.trainers.records import (
    BatchLosses,
    FailureCategory,
    FolderWritten,
    OperationFailed,
    Outcome,
    SampledSequence,
    Samples,
    StateLoaded,
    Stepped,
    TopK,
)
from windlass.tuning_api.trainers.remote.operations import tensor_from, tensor_to


def outcome_to(outcome: Outcome) -> pb.Outcome:
    """The message of an outcome."""
    if isinstance(outcome, BatchLosses):
        outputs = [
            pb.Outputs(tensors={name: tensor_to(value) for name, value in output.items()})
            for output in outcome.outputs
        ]
        metrics = pb.Metrics(values=outcome.metrics)
        losses = pb.BatchLosses(
            outputs=outputs, metrics=metrics, device_seconds=outcome.device_seconds
        )
        return pb.Outcome(losses=losses)
    if isinstance(outcome, Stepped):
        stepped = pb.Metrics(values=outcome.metrics, device_seconds=outcome.device_seconds)
        return pb.Outcome(stepped=stepped)
    if isinstance(outcome, FolderWritten):
        return pb.Outcome(written=outcome.size)
    if isinstance(outcome, StateLoaded):
        return pb.Outcome(loaded=True)
    return pb.Outcome(failed=_failed_to(outcome))


def outcome_from(message: pb.Outcome) -> Outcome:
    """Inverse of `outcome_to`; raises ValueError for what is none."""
    kind = message.WhichOneof("outcome")
    if kind == "losses":
        outputs = [
            {name: tensor_from(value) for name, value in one.tensors.items()}
            for one in message.losses.outputs
        ]
        losses = message.losses
        return BatchLosses(outputs, dict(losses.metrics.values), losses.device_seconds)
    if kind == "stepped":
        return Stepped(dict(message.stepped.values), message.stepped.device_seconds)
    if kind == "written":
        return FolderWritten(message.written)
    if kind == "loaded":
        return StateLoaded()
    if kind == "failed":
        return _failed_from(message.failed)
    raise ValueError("no outcome")


def samples_to(outcome: Samples | OperationFailed) -> pb.SampleOutcome:
    """The message of what a prompt led to."""
    if isinstance(outcome, OperationFailed):
        return pb.SampleOutcome(failed=_failed_to(outcome))
    samples = pb.Samples(
        sequences=[
            pb.SampledSequence(
                tokens=one.tokens,
                logprobs=one.logprobs,
                stopped=one.was_stopped,
                topk=_topk_to(one.topk),
            )
            for one in outcome.sequences
        ],
        prompt_logprobs=outcome.prompt_logprobs,
        topk_prompt_logprobs=_topk_to(outcome.topk_prompt_logprobs),
        device_seconds=outcome.device_seconds,
    )
    return pb.SampleOutcome(samples=samples)


def samples_from(message: pb.SampleOutcome) -> Samples | OperationFailed:
    """Inverse of `samples_to`; raises ValueError for what is none."""
    kind = message.WhichOneof("outcome")
    if kind == "failed":
        return _failed_from(message.failed)
    if kind != "samples":
        raise ValueError("no samples")
    found = message.samples
    return Samples(
        sequences=[
            SampledSequence(
                tokens=one.tokens,
                logprobs=one.logprobs,
                was_stopped=one.stopped,
                topk=_topk_from(one.topk) if one.HasField("topk") else None,
            )
            for one in found.sequences
        ],
        prompt_logprobs=found.prompt_logprobs if found.HasField("prompt_logprobs") else None,
        topk_prompt_logprobs=(
            _topk_from(found.topk_prompt_logprobs)
            if found.HasField("topk_prompt_logprobs")
            else None
        ),
        device_seconds=found.device_seconds,
    )


def _failed_to(failed: OperationFailed) -> pb.OperationFailed:
    return pb.OperationFailed(
        message=failed.message, reason=failed.reason, category=failed.category
    )


def _failed_from(message: pb.OperationFailed) -> OperationFailed:
    return OperationFailed(message.message, message.reason, FailureCategory(message.category))


def _topk_to(topk: TopK | None) -> pb.TopK | None:
    if topk is None:
        return None
    return pb.TopK(token_ids=topk.token_ids, logprobs=topk.logprobs, k=topk.k, length=topk.length)


def _topk_from(message: pb.TopK) -> TopK:
    return TopK(message.token_ids, message.logprobs, message.k, message.length)
