"""The trainer that computes nothing: for tests of the wire, and to try a client against a server.

BatchLosses are zero, log-probabilities too, and a sample repeats one token. What it saves says so.
"""

import json
import struct
from collections.abc import Sequence
from pathlib import Path

from windlass.tuning_api.trainers.port import RunNotOpen
from windlass.tuning_api.trainers.records import (
    BatchLosses,
    Datum,
    DType,
    FolderWritten,
    ForwardBackward,
    LoadState,
    Operation,
    OperationFailed,
    OptimStep,
    Outcome,
    Run,
    SampledSequence,
    SampleRequest,
    Samples,
    StateLoaded,
    Stepped,
    Tensor,
    TopK,
    TrainableModel,
)

MAX_CONTEXT_LENGTH = 32_768
MAX_RANK = 256
VOCABULARY_SIZE = 32_000
_MANIFEST = "null.json"
_LOSSES = frozenset({
    "cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo", "custom",
})  # fmt: skip
_BYTES = 4


class NullTrainer:
    """A trainer of models that exist in name alone; counts steps, so that order can be seen."""

    def __init__(self, names: Sequence[str]):
        self._base_models = tuple(
            TrainableModel(
                name,
                max_context_length=MAX_CONTEXT_LENGTH,
                max_rank=MAX_RANK,
                vocabulary_size=VOCABULARY_SIZE,
                tokenizer_id=name,
                architecture="null",
            )
            for name in names
        )
        self._steps: dict[str, int] = {}

    @property
    def base_models(self) -> Sequence[TrainableModel]:
        """The names it was given."""
        return self._base_models

    async def open(self, run: Run) -> None:
        """Begins the run at step 0."""
        self._steps.setdefault(run.id, 0)

    async def execute(self, run_id: str, operations: Sequence[Operation]) -> Sequence[Outcome]:
        """Answers at once."""
        if run_id not in self._steps:
            raise RunNotOpen(run_id)
        return [self._outcome(run_id, operation) for operation in operations]

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Returns the last token of the prompt, `max_tokens` times."""
        prompt = request.prompt.data
        token = prompt[-_BYTES:] or bytes(_BYTES)
        sequence = SampledSequence(
            tokens=token * request.max_tokens,
            logprobs=bytes(_BYTES * request.max_tokens),
            was_stopped=False,
            topk=_topk(token, request.max_tokens, request.topk_sample_logprobs),
        )
        length = len(prompt) // _BYTES
        logprobs = struct.pack("<f", float("nan")) + bytes(_BYTES * (length - 1))
        return Samples(
            sequences=[sequence] * request.count,
            prompt_logprobs=logprobs if request.with_prompt_logprobs else None,
            topk_prompt_logprobs=_topk(token, length, request.topk_prompt_logprobs),
        )

    async def close(self, run_id: str) -> None:
        """Forgets the count."""
        self._steps.pop(run_id, None)

    async def stop(self) -> None:
        """Forgets every count."""
        self._steps.clear()

    def _outcome(self, run_id: str, operation: Operation) -> Outcome:
        if isinstance(operation, ForwardBackward):
            if operation.loss not in _LOSSES:
                return OperationFailed(f"The loss {operation.loss!r} is not known.", "unknown_loss")
            outputs = [_output(datum) for datum in operation.data]
            return BatchLosses(outputs, {"loss:sum": 0.0})
        if isinstance(operation, OptimStep):
            self._steps[run_id] += 1
            return Stepped({"step:max": float(self._steps[run_id])})
        if isinstance(operation, LoadState):
            return self._load(run_id, operation)
        return _save(operation.folder, self._steps[run_id])

    def _load(self, run_id: str, operation: LoadState) -> Outcome:
        try:
            saved = json.loads(Path(operation.folder, _MANIFEST).read_bytes())
        except (OSError, ValueError):
            return OperationFailed("The state cannot be read.", "state_unreadable")
        self._steps[run_id] = int(saved["steps"]) if operation.with_optimizer else 0
        return StateLoaded()


def _save(folder: Path, steps: int) -> FolderWritten:
    size = Path(folder, _MANIFEST).write_bytes(json.dumps({"steps": steps}).encode())
    return FolderWritten(size)


def _output(datum: Datum) -> dict[str, Tensor]:
    targets = datum.loss_inputs.get("target_tokens", datum.tokens)
    count = targets.shape[0] if targets.shape else 0
    return {"logprobs": Tensor(DType.FLOAT32, (count,), bytes(_BYTES * count))}


def _topk(token: bytes, length: int, k: int) -> TopK | None:
    return TopK(token * (length * k), bytes(_BYTES * length * k), k, length) if k else None
