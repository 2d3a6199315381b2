"""The port's records as the engine's, and back."""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from windlass.tuning_api.trainers import records
from windlass_agent.tuning.losses.inputs import CUSTOM
from windlass_agent.tuning.requests.operations import (
    AdapterSpec,
    Array,
    ComputeLoss,
    Example,
    ExportAdapter,
    FolderResult,
    LossResult,
    Operation,
    OperationResult,
    ReadState,
    RunSpec,
    StepOptimizer,
    StepResult,
    Target,
    WriteState,
)
from windlass_agent.tuning.requests.prompts import Continuations, PromptRequest, Ranked
from windlass_agent.tuning.requests.refusal import TuningRefused

_TYPES: dict[records.DType, np.dtype[Any]] = {
    records.DType.FLOAT32: np.dtype("<f4"),
    records.DType.INT64: np.dtype("<i8"),
    records.DType.INT32: np.dtype("<i4"),
    records.DType.BFLOAT16: np.dtype("<u2"),
}
# What nobody but whoever runs the platform can do something about.
_OURS = frozenset(
    ("engine_failed", "out_of_memory", "not_written", "queue_full", "too_many_runs", "exists")
)
_STEP = frozenset(StepOptimizer.__dataclass_fields__)
_SEED_BYTES = 7
GRAPH = "graph"
"""Setting of the loss `custom`: its inputs and its graph, as JSON."""


def full_seed(run: records.Run) -> int:
    """The seed of a run of all parameters; raises TuningRefused for one that it cannot be."""
    if run.rank != 0:
        raise TuningRefused("full_parameters", "this trainer trains all parameters, and no adapter")
    if run.optimizer != "adamw":
        raise TuningRefused("unknown_optimizer", "the optimizer of all parameters is adamw")
    return _seed(run)


def run_spec(run: records.Run) -> RunSpec:
    """The run that the engine opens; raises TuningRefused for one that it cannot have."""
    if run.rank == 0:
        raise TuningRefused("full_parameters", "this trainer trains adapters alone")
    if run.optimizer not in ("adamw", "dimuon"):
        raise TuningRefused("unknown_optimizer", "the optimizer is adamw or dimuon")
    chosen: dict[Target, bool] = {
        "attention": run.train_attention,
        "mlp": run.train_mlp,
        "unembed": run.train_unembedding,
    }
    return RunSpec(
        project=run.project_id,
        adapter=AdapterSpec(
            rank=run.rank,
            seed=_seed(run),
            targets=frozenset(target for target, wanted in chosen.items() if wanted),
        ),
        optimizer="dimuon" if run.optimizer == "dimuon" else "adamw",
        exclusive=run.is_exclusive,
        weight=run.weight,
    )


def _seed(run: records.Run) -> int:
    # The same whenever the run is opened again.
    drawn = int.from_bytes(hashlib.sha256(run.id.encode()).digest()[:_SEED_BYTES])
    return drawn if run.seed is None else run.seed


def operation(asked: records.Operation) -> Operation:
    """The engine's operation; raises TuningRefused."""
    if isinstance(asked, records.ForwardBackward):
        config = dict(asked.config)
        document = config.pop(GRAPH, "") if asked.loss == CUSTOM else ""
        return ComputeLoss(
            examples=[_example(datum) for datum in asked.data],
            loss=asked.loss,
            settings=_numbers(config),
            learns=not asked.is_forward_only,
            document=str(document),
        )
    if isinstance(asked, records.OptimStep):
        if strange := set(asked.values) - _STEP:
            message = f"a step has no setting {sorted(strange)[0][:40]!r}"
            raise TuningRefused("unknown_setting", message)
        return StepOptimizer(**asked.values)
    if isinstance(asked, records.SaveState):
        return WriteState(asked.folder)
    if isinstance(asked, records.SaveAdapter):
        return ExportAdapter(asked.folder)
    return ReadState(folder=asked.folder, optimizer=asked.with_optimizer)


def outcome(result: OperationResult) -> records.Outcome:
    """The port's outcome of what the engine did."""
    if isinstance(result, LossResult):
        outputs = [{"logprobs": _tensor(values)} for values in result.logprobs]
        return records.BatchLosses(outputs, result.metrics, result.device_seconds)
    if isinstance(result, StepResult):
        metrics = {**result.metrics, "step:max": float(result.step)}
        return records.Stepped(metrics, result.device_seconds)
    return _folder(result)


def failed(refusal: TuningRefused) -> records.OperationFailed:
    """The port's word for a refusal."""
    ours = refusal.reason in _OURS
    category = records.FailureCategory.SERVER if ours else records.FailureCategory.USER
    message = f"{refusal.message[:1].upper()}{refusal.message[1:]}."
    return records.OperationFailed(message, refusal.reason, category)


def prompt(request: records.SampleRequest) -> PromptRequest:
    """The engine's prompt; raises TuningRefused."""
    return PromptRequest(
        tokens=_tokens(request.prompt),
        adapter=request.adapter,
        project=request.project_id,
        count=request.count,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        seed=secrets.randbits(62) if request.seed is None else request.seed,
        stop_tokens=frozenset(request.stop_tokens),
        stop_strings=tuple(request.stop_strings),
        prompt_logprobs=request.with_prompt_logprobs,
        ranked_prompt=request.topk_prompt_logprobs,
        ranked_tokens=request.topk_sample_logprobs,
    )


def samples(found: Continuations, request: records.SampleRequest) -> records.Samples:
    """The port's samples."""
    sequences = [
        records.SampledSequence(
            tokens=_bytes(one.tokens, "<i4"),
            logprobs=_bytes(one.logprobs, "<f4"),
            was_stopped=one.stopped,
            topk=_topk(one.ranked, request.topk_sample_logprobs),
        )
        for one in found.sequences
    ]
    scores = _bytes([np.nan, *found.prompt_logprobs], "<f4")
    # Nothing comes before the first token of a prompt.
    first: Ranked = [(0, np.nan)] * request.topk_prompt_logprobs
    return records.Samples(
        sequences=sequences,
        prompt_logprobs=scores if request.with_prompt_logprobs else None,
        topk_prompt_logprobs=_topk([first, *found.ranked_prompt], request.topk_prompt_logprobs),
        device_seconds=found.device_seconds,
    )


def _folder(result: FolderResult) -> records.Outcome:
    return records.StateLoaded() if result.was_read else records.FolderWritten(result.size)


def _example(datum: records.Datum) -> Example:
    inputs = {
        name: _tokens(tensor) if name == "target_tokens" else _values(tensor)
        for name, tensor in datum.loss_inputs.items()
    }
    return Example(tokens=_tokens(datum.tokens), inputs=inputs)


def _tokens(tensor: records.Tensor) -> npt.NDArray[np.int64]:
    if tensor.dtype not in (records.DType.INT32, records.DType.INT64):
        raise TuningRefused("wrong_dtype", f"tokens are integers, not {tensor.dtype}")
    return _array(tensor).astype(np.int64)


def _values(tensor: records.Tensor) -> Array:
    if tensor.dtype is records.DType.BFLOAT16:
        return (_array(tensor).astype(np.uint32) << 16).view(np.float32)
    # A copy, since torch takes only memory that may be written to.
    return _array(tensor).copy()


def _array(tensor: records.Tensor) -> Array:
    try:
        found: Array = np.frombuffer(tensor.data, _TYPES[tensor.dtype]).reshape(tensor.shape)
    except ValueError:
        message = f"{len(tensor.data)} bytes are not {tensor.shape} of {tensor.dtype}"
        raise TuningRefused("wrong_shape", message) from None
    return found


def _tensor(values: npt.NDArray[np.float32]) -> records.Tensor:
    return records.Tensor(records.DType.FLOAT32, values.shape, values.astype("<f4").tobytes())


def _numbers(config: Mapping[str, float | str]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, value in config.items():
        if isinstance(value, str):
            raise TuningRefused("invalid_setting", f"{name[:40]} is a number")
        numbers[name] = value
    return numbers


def _topk(rows: list[Ranked], k: int) -> records.TopK | None:
    if not k:
        return None
    flat = [pair for row in rows for pair in row]
    return records.TopK(
        token_ids=_bytes([token for token, _ in flat], "<i4"),
        logprobs=_bytes([logprob for _, logprob in flat], "<f4"),
        k=k,
        length=len(rows),
    )


def _bytes(values: list[int] | list[float], dtype: str) -> bytes:
    return np.array(values, dtype).tobytes()
