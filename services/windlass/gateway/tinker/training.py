"""Runs and their operations."""

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.api.tuning.v1 import tuning_pb2_grpc as rpc
from windlass.gateway.tinker.bodies import (
    CreateLossBody,
    CreateModelBody,
    ForwardBackwardBody,
    LoadWeightsBody,
    LoraConfigBody,
    ModelNameBody,
    OptimizerConfigBody,
    OptimStepBody,
    SaveExternalBody,
    SaveForSamplerBody,
    SaveWeightsBody,
)
from windlass.gateway.tinker.errors import TinkerError
from windlass.gateway.tinker.lending import Lending
from windlass.gateway.tinker.requests import TinkerRequest, int32, json_text, metadata_text
from windlass.gateway.tinker.routing import Answer, TinkerRoute, route
from windlass.gateway.tinker.tensors import loss_message

_MAX_TTL = 2**40


class TrainingRoutes:
    """Routes of runs and of what they are asked."""

    def __init__(self, tuning: rpc.TuningServiceAsyncStub, lending: Lending):
        self._tuning = tuning
        self._lending = lending

    def routes(self) -> tuple[TinkerRoute, ...]:
        """Every route."""
        return (
            route("POST", "create_model", self._create),
            route("POST", "get_info", self._info),
            route("POST", "unload_model", self._unload),
            route("POST", "forward_backward", self._forward_backward),
            route("POST", "forward", self._forward),
            route("POST", "optim_step", self._optim_step),
            route("POST", "save_weights", self._save),
            route("POST", "load_weights", self._load),
            route("POST", "save_weights_for_sampler", self._save_for_sampler),
            route("POST", "save_weights_external", self._save_external),
            route("POST", "create_custom_loss", self._create_loss),
        )

    async def _create(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(CreateModelBody)
        lora = asked.lora_config or LoraConfigBody()
        optimizer = asked.optimizer_config or OptimizerConfigBody()
        settings = pb.RunSettings(
            rank=int32(lora.rank, "rank"),
            train_attention=lora.train_attn,
            train_mlp=lora.train_mlp,
            train_unembedding=lora.train_unembed,
            optimizer=optimizer.type,
        )
        if lora.seed is not None:
            settings.seed = _int64(lora.seed, "seed")
        made = await self._tuning.CreateRun(
            pb.CreateRunRequest(
                session_id=asked.session_id,
                number=int32(asked.model_seq_id, "model_seq_id"),
                base_model=asked.base_model,
                settings=settings,
                user_metadata=metadata_text(asked.user_metadata),
            )
        )
        return _future(made)

    async def _info(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(ModelNameBody)
        run = await self._tuning.GetRun(pb.GetRunRequest(run_id=asked.model_id))
        return {
            "type": "get_info",
            "model_id": run.id,
            "model_data": {
                "arch": run.architecture,
                "model_name": run.base_model,
                "tokenizer_id": run.tokenizer_id or run.base_model,
            },
            "is_lora": run.settings.rank > 0,
            "lora_rank": run.settings.rank,
            "model_name": run.base_model,
            "optimizer_config": {"type": run.settings.optimizer},
        }

    async def _unload(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(ModelNameBody)
        await self._tuning.DeleteRun(pb.DeleteRunRequest(run_id=asked.model_id))
        return {"type": "unload_model", "model_id": asked.model_id}

    async def _forward_backward(self, request: TinkerRequest) -> Answer:
        if not request.is_protobuf:
            return await self._computed(request, forward_only=False)
        # Read where it is sent from: a message that is put into another is copied.
        asked = pb.SubmitRequest()
        message = asked.body.forward_backward
        request.read_computation(message)
        asked.run_id, asked.seq_id = message.model_id, int32(message.seq_id, "seq_id")
        return _future(await self._tuning.Submit(asked))

    async def _forward(self, request: TinkerRequest) -> Answer:
        return await self._computed(request, forward_only=True)

    async def _computed(self, request: TinkerRequest, *, forward_only: bool) -> Answer:
        asked = request.decoded(ForwardBackwardBody)
        given = asked.forward_input if forward_only else asked.forward_backward_input
        if given is None:
            raise TinkerError(400, "The request has no input.", code="invalid_value")
        seq_id = int32(asked.seq_id or 0, "seq_id")
        message = loss_message(asked.model_id, seq_id, given, forward_only=forward_only)
        return await self._submit(
            asked.model_id, seq_id, pb.OperationBody(forward_backward=message)
        )

    async def _optim_step(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(OptimStepBody)
        given = dict(asked.optimizer_params or asked.adam_params or {})
        given.pop("type", None)
        values: dict[str, float] = {}
        for name, value in given.items():
            if isinstance(value, str):
                raise TinkerError(400, f"{name[:64]} must be a number.", code="invalid_value")
            values[name] = value
        body = pb.OperationBody(optim_step=pb.OptimStep(values=values))
        return await self._submit(asked.model_id, asked.seq_id or 0, body)

    async def _save(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(SaveWeightsBody)
        saved = pb.SaveState(
            name=asked.path or f"{asked.seq_id or 0:06d}",
            ttl_seconds=_ttl(asked.ttl_seconds),
            overwrite=asked.overwrite,
            user_metadata=metadata_text(asked.user_metadata),
        )
        body = pb.OperationBody(save_state=saved)
        return await self._submit(asked.model_id, asked.seq_id or 0, body)

    async def _load(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(LoadWeightsBody)
        access = await self._lending.access(request, asked.weights_access_token, asked.path)
        if asked.model_id is not None:
            loaded = pb.LoadState(path=asked.path, with_optimizer=asked.optimizer)
            body = pb.OperationBody(load_state=loaded)
            return await self._submit(asked.model_id, asked.seq_id or 0, body, access)
        if asked.session_id is None or asked.model_seq_id is None:
            raise TinkerError(400, "Name a model or a session.", code="invalid_value")
        made = await self._tuning.CreateRun(
            pb.CreateRunRequest(
                session_id=asked.session_id,
                number=int32(asked.model_seq_id, "model_seq_id"),
                base_model=asked.base_model or "",
                user_metadata=metadata_text(asked.user_metadata),
                from_path=asked.path,
                with_optimizer=asked.optimizer,
                access=access,
            )
        )
        return _future(made)

    async def _save_for_sampler(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(SaveForSamplerBody)
        saved = pb.SaveSampler(
            name=asked.path or "",
            inflight=asked.kind == "inflight",
            ttl_seconds=_ttl(asked.ttl_seconds),
            user_metadata=metadata_text(asked.user_metadata),
        )
        if asked.sampling_session_seq_id is not None:
            number = asked.sampling_session_seq_id
            saved.sampler_number = int32(number, "sampling_session_seq_id")
        body = pb.OperationBody(save_sampler=saved)
        return await self._submit(asked.model_id, asked.seq_id or 0, body)

    async def _save_external(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(SaveExternalBody)
        saved = pb.SaveExternal(name=asked.path, ttl_seconds=_ttl(asked.ttl_seconds))
        body = pb.OperationBody(save_external=saved)
        if asked.age_encryption_recipients:
            # In its place, since what follows has the next number.
            message = "Weights are not encrypted for recipients here: objects of a project are "
            message += "sealed by its own key. Leave age_encryption_recipients out."
            body = pb.OperationBody(refused=pb.Refused(message=message, reason="not_served"))
        return await self._submit(asked.model_id, asked.seq_id or 0, body)

    async def _create_loss(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(CreateLossBody)
        document = json_text({"inputs": asked.inputs, "graph": asked.graph}, "graph")
        made = await self._tuning.CreateLoss(
            pb.CreateLossRequest(
                session_id=asked.session_id,
                number=int32(asked.custom_loss_seq_id, "custom_loss_seq_id"),
                name=asked.name,
                document=document,
            )
        )
        return {"request_id": made.id}

    async def _submit(
        self, model_id: str, seq_id: int, body: pb.OperationBody, access: str = ""
    ) -> Answer:
        made = await self._tuning.Submit(
            pb.SubmitRequest(
                run_id=model_id, seq_id=int32(seq_id, "seq_id"), body=body, access=access
            )
        )
        return _future(made)


def _future(operation: pb.Operation) -> Answer:
    return {"request_id": operation.id, "model_id": operation.run_id}


def _int64(number: int, name: str) -> int:
    if not -(2**63) <= number < 2**63:
        raise TinkerError(400, f"{name} is out of range.", code="invalid_value", param=name)
    return number


def _ttl(seconds: int | None) -> int:
    if seconds is None:
        return 0
    # The service refuses it in its place.
    return min(max(seconds, -1), _MAX_TTL)
