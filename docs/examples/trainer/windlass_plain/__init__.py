"""The smallest engine: cross entropy and torch's AdamW, one sequence after another."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from windlass.tuning_api.trainers.engines import FullTrainerSpec
from windlass.tuning_api.trainers.port import RunNotOpen
from windlass.tuning_api.trainers.records import (
    BatchLosses,
    Datum,
    DType,
    FailureCategory,
    FolderWritten,
    ForwardBackward,
    LoadState,
    Operation,
    OperationFailed,
    OptimStep,
    Outcome,
    Run,
    SampleRequest,
    Samples,
    SaveAdapter,
    SaveState,
    StateLoaded,
    Stepped,
    Tensor,
    TrainableModel,
)

_STATE = "state.pt"
_KINDS = {DType.FLOAT32: "<f4", DType.INT32: "<i4", DType.INT64: "<i8"}


class PlainTrainer:
    """Implements `Trainer` for one run; refuses what it does not know by its reason."""

    def __init__(self, spec: FullTrainerSpec):
        self._spec = spec
        self._run_id = ""

    @property
    def base_models(self) -> Sequence[TrainableModel]:
        """The model that it was made for."""
        return [self._spec.model]

    async def open(self, run: Run) -> None:
        """Loads the model once."""
        if self._run_id == run.id:
            return
        self._run_id = run.id
        self._model = await asyncio.to_thread(
            AutoModelForCausalLM.from_pretrained, self._spec.folder, dtype=torch.float32
        )
        self._optimizer = torch.optim.AdamW(self._model.parameters())

    async def execute(self, run_id: str, operations: Sequence[Operation]) -> Sequence[Outcome]:
        """Carries out one after another."""
        if run_id != self._run_id:
            raise RunNotOpen(run_id)
        return [await asyncio.to_thread(self._done, operation) for operation in operations]

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Never asked: what is saved is a model, which Windlass samples from."""
        return OperationFailed("Ask the sampler.", "not_served", FailureCategory.SERVER)

    async def close(self, run_id: str) -> None:
        """Nothing: the process ends."""

    async def stop(self) -> None:
        """Nothing: the process ends."""

    def _done(self, operation: Operation) -> Outcome:
        if isinstance(operation, ForwardBackward):
            if operation.loss != "cross_entropy":
                return OperationFailed(f"The loss {operation.loss!r} is not known.", "unknown_loss")
            return self._learned(operation)
        if isinstance(operation, OptimStep):
            return self._stepped(operation)
        if isinstance(operation, SaveState):
            states = (self._model.state_dict(), self._optimizer.state_dict())
            torch.save(states, operation.folder / _STATE)
            return _written(operation.folder)
        if isinstance(operation, SaveAdapter):
            self._model.save_pretrained(operation.folder)
            for name in self._spec.folder.glob("tokenizer*"):
                shutil.copy(name, operation.folder)
            return _written(operation.folder)
        return self._loaded(operation)

    def _learned(self, operation: ForwardBackward) -> Outcome:
        outputs, total = [], 0.0
        with torch.set_grad_enabled(not operation.is_forward_only):
            for datum in operation.data:
                logprobs = self._logprobs(datum)
                weights = _torch(datum.loss_inputs["weights"])
                loss = -(weights * logprobs).sum()
                if not operation.is_forward_only:
                    loss.backward()
                found = logprobs.detach().numpy().astype("<f4")
                outputs.append({"logprobs": Tensor(DType.FLOAT32, found.shape, found.tobytes())})
                total += float(loss.detach())
        return BatchLosses(outputs, {"loss:sum": total})

    def _logprobs(self, datum: Datum) -> torch.Tensor:
        logits = self._model(_torch(datum.tokens)[None].long()).logits[0]
        targets = _torch(datum.loss_inputs["target_tokens"]).long()
        return logits.log_softmax(-1).gather(-1, targets[:, None])[:, 0]

    def _stepped(self, operation: OptimStep) -> Outcome:
        values = operation.values
        for group in self._optimizer.param_groups:
            group["lr"] = values.get("learning_rate", 1e-4)
            group["betas"] = (values.get("beta1", 0.9), values.get("beta2", 0.95))
            group["eps"] = values.get("eps", 1e-12)
            group["weight_decay"] = values.get("weight_decay", 0.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return Stepped({})

    def _loaded(self, operation: LoadState) -> Outcome:
        weights, moments = torch.load(operation.folder / _STATE, weights_only=True)
        self._model.load_state_dict(weights)
        if operation.with_optimizer:
            self._optimizer.load_state_dict(moments)
        return StateLoaded()


def _torch(tensor: Tensor) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(tensor.data, _KINDS[tensor.dtype]).copy())


def _written(folder: Path) -> FolderWritten:
    return FolderWritten(sum(path.stat().st_size for path in folder.iterdir()))
