"""Runs, operations and requests for samples as messages, and back; pure."""

from collections.abc import Callable
from pathlib import Path

from windlass.api.trainer.v1 import trainer_pb2 as pb
from windlass.tuning_api.trainers.records import (
    Datum,
    DType,
    ForwardBackward,
    LoadState,
    Operation,
    OptimStep,
    Run,
    SampleRequest,
    SaveAdapter,
    SaveState,
    Tensor,
    TrainableModel,
)

# A folder as the process may use it; raises ValueError for one that is elsewhere.
Folder = Callable[[str], Path]


def model_to(model: TrainableModel) -> pb.TrainableModel:
    """The message of a model."""
    return pb.TrainableModel(
        name=model.name,
        max_context_length=model.max_context_length,
        max_rank=model.max_rank,
        vocabulary_size=model.vocabulary_size,
        tokenizer_id=model.tokenizer_id,
        architecture=model.architecture,
    )


def model_from(message: pb.TrainableModel) -> TrainableModel:
    """Inverse of `model_to`."""
    return TrainableModel(
        name=message.name,
        max_context_length=message.max_context_length,
        max_rank=message.max_rank,
        vocabulary_size=message.vocabulary_size,
        tokenizer_id=message.tokenizer_id,
        architecture=message.architecture,
    )


def run_to(run: Run) -> pb.Run:
    """The message of a run."""
    return pb.Run(
        id=run.id,
        project_id=run.project_id,
        base_model=run.base_model,
        rank=run.rank,
        seed=run.seed,
        train_attention=run.train_attention,
        train_mlp=run.train_mlp,
        train_unembedding=run.train_unembedding,
        optimizer=run.optimizer,
        exclusive=run.is_exclusive,
        weight=run.weight,
    )


def run_from(message: pb.Run) -> Run:
    """Inverse of `run_to`."""
    return Run(
        id=message.id,
        project_id=message.project_id,
        base_model=message.base_model,
        rank=message.rank,
        seed=message.seed if message.HasField("seed") else None,
        train_attention=message.train_attention,
        train_mlp=message.train_mlp,
        train_unembedding=message.train_unembedding,
        optimizer=message.optimizer,
        is_exclusive=message.exclusive,
        weight=message.weight,
    )


def tensor_to(tensor: Tensor) -> pb.Tensor:
    """The message of an array."""
    return pb.Tensor(dtype=tensor.dtype, shape=tensor.shape, data=tensor.data)


def tensor_from(message: pb.Tensor) -> Tensor:
    """Inverse of `tensor_to`; raises ValueError for an unknown type."""
    return Tensor(DType(message.dtype), tuple(message.shape), message.data)


def operation_to(operation: Operation) -> pb.Operation:
    """The message of an operation."""
    if isinstance(operation, ForwardBackward):
        return pb.Operation(forward_backward=_losses_to(operation))
    if isinstance(operation, OptimStep):
        return pb.Operation(optim_step=pb.OptimStep(values=operation.values))
    if isinstance(operation, SaveState):
        return pb.Operation(save_state=pb.Folder(path=str(operation.folder)))
    if isinstance(operation, SaveAdapter):
        return pb.Operation(save_adapter=pb.Folder(path=str(operation.folder)))
    loaded = pb.LoadState(path=str(operation.folder), with_optimizer=operation.with_optimizer)
    return pb.Operation(load_state=loaded)


def operation_from(message: pb.Operation, folder: Folder) -> Operation:
    """Inverse of `operation_to`; raises ValueError for what is none, or reaches elsewhere."""
    kind = message.WhichOneof("operation")
    if kind == "forward_backward":
        return _losses_from(message.forward_backward)
    if kind == "optim_step":
        return OptimStep(dict(message.optim_step.values))
    if kind == "save_state":
        return SaveState(folder(message.save_state.path))
    if kind == "save_adapter":
        return SaveAdapter(folder(message.save_adapter.path))
    if kind == "load_state":
        asked = message.load_state
        return LoadState(folder(asked.path), asked.with_optimizer)
    raise ValueError("no operation")


def sampling_to(request: SampleRequest) -> pb.SampleRequest:
    """The message of a request for samples."""
    return pb.SampleRequest(
        base_model=request.base_model,
        project_id=request.project_id,
        adapter=str(request.adapter) if request.adapter else "",
        prompt=tensor_to(request.prompt),
        count=request.count,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        seed=request.seed,
        stop_strings=request.stop_strings,
        stop_tokens=request.stop_tokens,
        with_prompt_logprobs=request.with_prompt_logprobs,
        topk_prompt_logprobs=request.topk_prompt_logprobs,
        topk_sample_logprobs=request.topk_sample_logprobs,
    )


def sampling_from(message: pb.SampleRequest, folder: Folder) -> SampleRequest:
    """Inverse of `sampling_to`; raises ValueError for an adapter elsewhere."""
    return SampleRequest(
        base_model=message.base_model,
        project_id=message.project_id,
        adapter=folder(message.adapter) if message.adapter else None,
        prompt=tensor_from(message.prompt),
        count=message.count,
        max_tokens=message.max_tokens,
        temperature=message.temperature,
        top_k=message.top_k,
        top_p=message.top_p,
        seed=message.seed if message.HasField("seed") else None,
        stop_strings=tuple(message.stop_strings),
        stop_tokens=tuple(message.stop_tokens),
        with_prompt_logprobs=message.with_prompt_logprobs,
        topk_prompt_logprobs=message.topk_prompt_logprobs,
        topk_sample_logprobs=message.topk_sample_logprobs,
    )


def _losses_to(operation: ForwardBackward) -> pb.ForwardBackward:
    return pb.ForwardBackward(
        data=[
            pb.Datum(
                tokens=tensor_to(one.tokens),
                loss_inputs={name: tensor_to(value) for name, value in one.loss_inputs.items()},
            )
            for one in operation.data
        ],
        loss=operation.loss,
        config={name: _setting(value) for name, value in operation.config.items()},
        forward_only=operation.is_forward_only,
    )


def _losses_from(message: pb.ForwardBackward) -> ForwardBackward:
    return ForwardBackward(
        data=[
            Datum(
                tensor_from(one.tokens),
                {name: tensor_from(value) for name, value in one.loss_inputs.items()},
            )
            for one in message.data
        ],
        loss=message.loss,
        config={
            name: value.text if value.WhichOneof("value") == "text" else value.number
            for name, value in message.config.items()
        },
        is_forward_only=message.forward_only,
    )


def _setting(value: float | str) -> pb.Setting:
    return pb.Setting(text=value) if isinstance(value, str) else pb.Setting(number=value)
