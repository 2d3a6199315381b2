"""A training of an engine or a checkpoint of its weights, and how it is shown; pure."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.inference.trainings.datums import check_loss, datum_length, datum_words

QUEUED, RUNNING = "queued", "running"
SUCCEEDED, FAILED, CANCELLED = "succeeded", "failed", "cancelled"
OPEN = (QUEUED, RUNNING)
MESSAGE_LENGTH = 2000
REASON_LENGTH = 100
MAX_BODY_BYTES = 8 * 2**20
OPTIMIZERS = ("apollo-mini", "apollo", "adamw", "sgd")

# Begins keys of what nobody asked for; a caller's is printable.
UNSAID = "\x01"
_MAX_SAMPLES, _MAX_STEPS, _MAX_BATCH_TOKENS = 10_000, 100_000, 2**20
_MAX_GUARD_SAMPLES, _MAX_LIMIT = 1000, 1e6
_BOUNDS = {
    "epochs": (1, _MAX_STEPS),
    "batch": (1, 256),
    "rank": (1, 4096),
    "seed": (0, 2**32),
    "max_seconds": (1, 7 * 86400),
    "place_steps": (0, _MAX_STEPS),
    "save_steps": (0, _MAX_STEPS),
}
_SHOWN = {
    QUEUED: pb.ENGINE_TRAINING_STATE_QUEUED,
    RUNNING: pb.ENGINE_TRAINING_STATE_RUNNING,
    SUCCEEDED: pb.ENGINE_TRAINING_STATE_SUCCEEDED,
    FAILED: pb.ENGINE_TRAINING_STATE_FAILED,
    CANCELLED: pb.ENGINE_TRAINING_STATE_CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTraining:
    """A training, or a checkpoint where it has a suffix; times are Unix seconds, 0 for never."""

    id: str
    organization_id: str
    project_id: str
    user_id: str
    key_id: str
    model: str
    version_id: str
    # Of a checkpoint alone: the end of the name of the model that it becomes.
    suffix: str = ""
    mode: str = ""
    # Within the project; none has one of its own.
    idempotency_key: str | None = None
    digest: bytes = b""
    # The request as the plugin reads it, until it has ended.
    body: bytes = field(default=b"", repr=False)
    tokens: int = 0
    """Tokens of all its steps."""
    total_steps: int = 0
    steps: int = 0
    loss: float | None = None
    # Of those, in the weights, where an older version was put back.
    kept_steps: int | None = None
    state: str = QUEUED
    reason: str = ""
    message: str = ""
    engine_id: str = ""
    cluster_id: str = ""
    checkpoint_model: str = ""
    # Of a checkpoint: the bytes of the deltas that its agent has, by the names of their files, of
    # all its weights, and of what came for them.
    deltas: dict[str, int] = field(default_factory=dict)
    weight_bytes: int = 0
    uploaded_bytes: int = 0
    is_cancelled: bool = False
    # Whether a checkpoint has what it learned, and whether its tokens were counted.
    is_saved: bool = False
    is_counted: bool = False
    # Of what a run of tuning computes: the run, and the bytes of a forward pass's outputs.
    run_id: str = ""
    output_bytes: int = 0
    outputs: bytes = field(default=b"", repr=False)
    # Of the workload: what the cluster should know, and what it knows.
    generation: int = 1
    put_generation: int = 0
    created_at: float = 0.0
    urls_at: float = 0.0
    finished_at: float = 0.0

    @property
    def is_open(self) -> bool:
        """True until it has ended."""
        return self.state in OPEN

    @property
    def is_checkpoint(self) -> bool:
        """True for a checkpoint."""
        return bool(self.suffix)

    @property
    def is_automatic(self) -> bool:
        """True for a checkpoint that nobody asked for."""
        return (self.idempotency_key or "").startswith(UNSAID)

    @property
    def trained_tokens(self) -> int:
        """Tokens of the steps that were done."""
        if not self.total_steps:
            return 0
        return self.tokens * min(self.steps, self.total_steps) // self.total_steps


def checked(request: pb.CreateEngineTrainingRequest, mode: str) -> tuple[int, int]:
    """Returns the steps and the tokens of a request; raises InvalidArgument, naming the field."""
    lengths = _lengths(request)
    for name, (least, most) in _BOUNDS.items():
        if not least <= getattr(request, name) <= most:
            raise InvalidArgument(f"{name} must be {least} to {most}.", param=name)
    if not 0 <= request.learning_rate <= 10:
        raise InvalidArgument("learning_rate must be 0 to 10.", param="learning_rate")
    if request.optimizer not in OPTIMIZERS:
        known = ", ".join(OPTIMIZERS)
        raise InvalidArgument(f"optimizer must be one of {known}.", param="optimizer")
    if request.place_steps and mode != "shadow":
        words = "Only an engine that is trained in mode shadow puts copies in place."
        raise InvalidArgument(words, param="place_steps")
    if request.HasField("guard"):
        _check_guard(request.guard)
    steps = request.epochs * -(-len(lengths) // request.batch)
    if steps > _MAX_STEPS:
        raise InvalidArgument(f"{steps} steps exceed {_MAX_STEPS}.", param="epochs")
    if request.batch * max(lengths) > _MAX_BATCH_TOKENS:
        raise InvalidArgument(f"A step exceeds {_MAX_BATCH_TOKENS} tokens.", param="batch")
    return steps, request.epochs * sum(lengths)


def _lengths(request: pb.CreateEngineTrainingRequest) -> list[int]:
    """The tokens of each sample or datum."""
    if not request.datums:
        _check_number(request.samples, "samples", _MAX_SAMPLES)
        if request.loss or request.loss_config:
            raise InvalidArgument("Samples have a loss of their own.", param="loss")
        return [_length(f"samples.{at}", one) for at, one in enumerate(request.samples)]
    if request.samples:
        raise InvalidArgument("A training has samples or datums, not both.", param="datums")
    _check_number(request.datums, "datums", _MAX_SAMPLES)
    spec = check_loss(request.loss, request.loss_config)
    return [datum_length(f"datums.{at}", one, spec) for at, one in enumerate(request.datums)]


def _check_number(samples: Sequence[object], name: str, most: int) -> None:
    if not 1 <= len(samples) <= most:
        raise InvalidArgument(f"{name} must be 1 to {most}.", param=name)


def _check_guard(guard: pb.TrainingGuard) -> None:
    _check_number(guard.samples, "guard.samples", _MAX_GUARD_SAMPLES)
    for at, sample in enumerate(guard.samples):
        _length(f"guard.samples.{at}", sample)
    if not 1 <= guard.every <= _MAX_STEPS:
        raise InvalidArgument(f"guard.every must be 1 to {_MAX_STEPS}.", param="guard.every")
    for name in ("max_loss", "max_kl"):
        if guard.HasField(name) and not 0 <= getattr(guard, name) <= _MAX_LIMIT:
            where = f"guard.{name}"
            raise InvalidArgument(f"{where} must be 0 to {_MAX_LIMIT:g}.", param=where)


def _length(at: str, sample: pb.TrainingSample) -> int:
    for name in ("context_ids", "continuation_ids"):
        ids, where = getattr(sample, name), f"{at}.{name}"
        if not ids or min(ids) < 0:
            raise InvalidArgument(f"{where} must be ids from 0 on, one at least.", param=where)
    weights, where = sample.weights, f"{at}.weights"
    if weights:
        possible = all(math.isfinite(one) and 0 <= one <= 1e6 for one in weights)
        if len(weights) != len(sample.continuation_ids) or not possible or not any(weights):
            raise InvalidArgument(
                f"{where} must be one for each id of the continuation, from 0 to 1e6.", param=where
            )
    return len(sample.context_ids) + len(sample.continuation_ids)


def body_of(request: pb.CreateEngineTrainingRequest, identifier: str, mode: str) -> bytes:
    """The request as the plugin reads it; raises InvalidArgument for one that is too large."""
    words: dict[str, Any] = {"mode": mode, "idempotency_key": identifier}
    if request.datums:
        words |= {"datums": datum_words(request.datums), "loss": request.loss}
        words |= {"loss_config": dict(request.loss_config)}
    else:
        words |= {"samples": _samples(request.samples)}
    if request.HasField("guard"):
        guard = request.guard
        words["guard"] = {"samples": _samples(guard.samples), "every": guard.every}
        limits = (name for name in ("max_loss", "max_kl") if guard.HasField(name))
        words["guard"] |= {name: getattr(guard, name) for name in limits}
    names = ("learning_rate", "optimizer", *_BOUNDS)
    body = msgspec.json.encode(words | {name: getattr(request, name) for name in names})
    if len(body) > MAX_BODY_BYTES:
        name = "datums" if request.datums else "samples"
        raise InvalidArgument(f"The {name} exceed {MAX_BODY_BYTES} bytes.", param=name)
    return body


def _samples(samples: Iterable[pb.TrainingSample]) -> list[dict[str, Any]]:
    return [
        {"context_ids": list(one.context_ids), "continuation_ids": list(one.continuation_ids)}
        | ({"weights": list(one.weights)} if one.weights else {})
        for one in samples
    ]


def digest_of(
    request: pb.CreateEngineTrainingRequest
    | pb.CreateEngineCheckpointRequest
    | pb.ComputeInEngineRequest,
) -> bytes:
    """Returns what tells requests under one idempotency key apart."""
    return hashlib.sha256(request.SerializeToString(deterministic=True)).digest()


def ended_as(
    status: clusters_pb2.WorkloadStatus,
) -> tuple[str, str, str] | None:
    """The state, the reason and the message of the end that an agent says; None before it."""
    states = {
        clusters_pb2.PHASE_SUCCEEDED: SUCCEEDED,
        clusters_pb2.PHASE_FAILED: FAILED,
        clusters_pb2.PHASE_STOPPED: CANCELLED,
    }
    if status.phase not in states:
        return None
    return states[status.phase], status.reason[:REASON_LENGTH], status.message[:MESSAGE_LENGTH]


def new_steps(
    training: EngineTraining, said: clusters_pb2.EngineTrainingStatus
) -> list[clusters_pb2.EngineTrainingStep]:
    """Returns the steps of a report that are new and can be."""
    return [
        one
        for one in said.recent
        if training.steps < one.step <= training.total_steps
        and all(map(math.isfinite, (one.loss, one.seconds, one.held_out_loss, one.kl)))
    ]


def kept_steps(training: EngineTraining, said: clusters_pb2.EngineTrainingStatus) -> int | None:
    """Returns the steps that a report says are in the weights, where that can be."""
    can_be = said.HasField("kept_steps") and 0 <= said.kept_steps <= training.steps
    return said.kept_steps if can_be else None


def state_of(training: EngineTraining) -> "pb.EngineTrainingState.ValueType":
    """The state in a message."""
    return _SHOWN[training.state]


def shown(training: EngineTraining) -> pb.EngineTraining:
    """A training as its project sees it."""
    return pb.EngineTraining(
        id=training.id,
        model=training.model,
        engine_id=training.engine_id,
        is_checkpoint=training.is_checkpoint,
        state=_SHOWN[training.state],
        steps=training.steps,
        total_steps=training.total_steps,
        tokens=training.trained_tokens,
        loss=training.loss,
        reason=training.reason,
        message=training.message,
        checkpoint_model=training.checkpoint_model,
        created_at=int(training.created_at),
        finished_at=int(training.finished_at),
        mode=training.mode,
        kept_steps=training.kept_steps,
        weight_bytes=training.weight_bytes,
        uploaded_bytes=training.uploaded_bytes,
    )
