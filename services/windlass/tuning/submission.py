"""Operations that tenants ask of runs and samplers, into the log and back out of it."""

import hashlib
from dataclasses import replace
from typing import Any

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core.db.wake import Wake
from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.core.ids import new_id
from windlass.core.killpoints import reach
from windlass.core.objects import ObjectNotFound
from windlass.core.rpc.auth import Principal
from windlass.tuning.admission import (
    MAX_SAMPLE_SEQ_ID,
    known_model,
    merged,
    placed,
    reader_of,
    valid_settings,
)
from windlass.tuning.blobs import Blobs
from windlass.tuning.domain import (
    FULL,
    IN_ENGINE,
    LONGEST_WAIT_MS,
    MAX_SAMPLES,
    in_engine,
    option,
    parse_path,
    run_id_of,
    unknown_operation,
    valid_metadata,
    valid_number,
    valid_text,
)
from windlass.tuning.full_parameters import FullParameterBounds, is_full
from windlass.tuning.in_engine.admission import (
    EngineRuns,
    may_train_engines,
    require_permission,
)
from windlass.tuning.in_engine.models import engine_model
from windlass.tuning.inbox import Inboxes, SampleDesk
from windlass.tuning.results import ResultBoard
from windlass.tuning.storage.checkpoints import WeightsStore
from windlass.tuning.storage.log import REFUSALS, NewOperation, Written
from windlass.tuning.storage.losses import LossStore
from windlass.tuning.storage.runs import RunStore
from windlass.tuning.storage.sessions import TuningSessionStore
from windlass.tuning_api.losses.graph import InvalidLossGraph, read_graph
from windlass.tuning_api.trainers.port import Trainer

WAKE_RUNS, WAKE_SAMPLES = "tuning", "tuning samples"
# The loss that a session made, its name and its graph in the configuration of a computation.
CUSTOM, LOSS_ID, GRAPH = "custom", "loss_id", "graph"
CANCELLED = pb.Result(
    failure=pb.OperationFailure(
        message="The request was cancelled.", reason="cancelled", category="user"
    )
).SerializeToString()


class Submission:
    """Writes operations, and reads their results."""

    def __init__(
        self,
        sessions: TuningSessionStore,
        runs: RunStore,
        checkpoints: WeightsStore,
        losses: LossStore,
        trainer: Trainer,
        blobs: Blobs,
        board: ResultBoard,
        inboxes: Inboxes,
        desk: SampleDesk,
        wake: Wake,
        full_parameters: FullParameterBounds,
        engine_runs: EngineRuns,
    ):
        self._engine_runs = engine_runs
        self._sessions = sessions
        self._runs = runs
        self._checkpoints = checkpoints
        self._losses = losses
        self._trainer = trainer
        self._blobs = blobs
        self._board = board
        self._inboxes = inboxes
        self._desk = desk
        self._wake = wake
        self._full_parameters = full_parameters

    async def create_run(self, caller: Principal, request: pb.CreateRunRequest) -> pb.Operation:
        """Makes a run with the operation that opens it; idempotent by session and number."""
        project_id = caller.require_project()
        session = await self._sessions.get(project_id, request.session_id)
        metadata = merged(session.user_metadata, valid_metadata(request.user_metadata))
        run_id = run_id_of(request.session_id, request.number)
        if in_engine(metadata):
            base_model, lent = request.base_model, ""
            settings = await self._in_engine(caller, request, run_id, metadata)
        else:
            base_model, settings, lent = await self._wanted(caller, request, metadata)
        values = {
            "id": run_id,
            "organization_id": caller.organization_id,
            "project_id": project_id,
            "user_id": caller.user_id,
            "session_id": request.session_id,
            "base_model": base_model,
            "settings": settings,
            "is_full": is_full(settings) and not in_engine(metadata),
            "user_metadata": metadata,
        }
        opening = pb.OpenRun(
            from_path=request.from_path,
            with_optimizer=request.with_optimizer,
            lent_checkpoint_id=lent,
        )
        new = await self._new(
            caller,
            pb.OperationBody(open_run=opening),
            run_id=run_id,
            slot=f"{run_id}#open",
            digest=_digest(_without_access(request)),
        )
        written = await self._runs.create(project_id, values, new)
        return await self._written(new, written, WAKE_RUNS)

    async def create_loss(self, caller: Principal, request: pb.CreateLossRequest) -> pb.Operation:
        """Stores a loss with the operation whose result names it; idempotent by its number."""
        try:
            read_graph(request.document)
        except InvalidLossGraph as error:
            message = f"The loss is refused: {error}."
            raise InvalidArgument(message, reason="invalid_loss_graph", param="graph") from None
        project_id = caller.require_project()
        loss_id = new_id("loss-")
        values = {
            "id": loss_id,
            "organization_id": caller.organization_id,
            "project_id": project_id,
            "user_id": caller.user_id,
            "session_id": request.session_id,
            "name": valid_text(request.name, "name"),
            "document": request.document,
        }
        slot = f"{request.session_id}#loss#{valid_number(request.number)}"
        new = await self._new(caller, pb.OperationBody(), slot=slot, digest=_digest(request))
        result = pb.Result(loss=pb.CreatedLoss(loss_id=loss_id)).SerializeToString()
        written = await self._losses.create(values, new, result)
        if written.is_new:
            self._board.tell(project_id, [(new.id, result, "")])
        return pb.Operation(id=written.id)

    async def submit(self, caller: Principal, request: pb.SubmitRequest) -> pb.Operation:
        """Writes an operation of a run; idempotent by its number."""
        await self._require_run(caller, request.run_id)
        body = placed(request.body, request.seq_id)
        digest = _digest(body)
        if body.WhichOneof("body") == "load_state" and request.access:
            lent = await self._checkpoints.lent(request.access, parse_path(body.load_state.path))
            body.load_state.lent_checkpoint_id = lent.id
        body = await self._with_loss(caller.require_project(), request.run_id, body)
        slot = f"{request.run_id}#{request.seq_id}" if request.seq_id else None
        new = await self._new(
            caller,
            body,
            run_id=request.run_id,
            seq_id=request.seq_id,
            slot=slot,
            digest=digest,
        )
        try:
            written = await self._runs.submit(new)
        except REFUSALS:
            # After any other error the row may be there, and would need its body.
            await self._blobs.delete(new.body_key)
            raise
        return await self._written(new, written, WAKE_RUNS)

    async def sample(self, caller: Principal, request: pb.SampleRequest) -> pb.Operation:
        """Writes what a sampler, or a model without one, is asked."""
        project_id = caller.require_project()
        wish, slot = request.sampling, None
        if not 1 <= wish.count <= MAX_SAMPLES:
            raise InvalidArgument(
                f"num_samples must be between 1 and {MAX_SAMPLES}.", param="num_samples"
            )
        if request.sampler_id:
            sampler = await self._sessions.sampler(project_id, request.sampler_id)
            caller.require_model(sampler.base_model, "sampling_session_id")
            if request.HasField("seq_id"):
                if not 0 <= request.seq_id <= MAX_SAMPLE_SEQ_ID:
                    raise InvalidArgument("seq_id is out of range.", param="seq_id")
                slot = f"{request.sampler_id}#{request.seq_id}"
        else:
            await self._require_named(caller, wish)
        body = pb.OperationBody(sampling=wish)
        new = await self._new(
            caller,
            body,
            sampler_id=request.sampler_id or "-",
            seq_id=request.seq_id,
            slot=slot,
            digest=_digest(body),
        )
        if self._desk.has_room():
            new = replace(new, lease_owner=new_id("lease_"))
        try:
            written = await self._runs.sample(new)
        except REFUSALS:
            # After any other error the row may be there, and would need its body.
            await self._blobs.delete(new.body_key)
            raise
        answer = await self._written(new, written, WAKE_SAMPLES)
        answer.sequence_ids.extend(f"{answer.id}:{number}" for number in range(wish.count))
        return answer

    async def result(self, project_id: str, operation_id: str, wait_ms: int) -> pb.Result | None:
        """The result of an operation, None while it waits.

        Raises NotFound, FailedPrecondition `result_expired`.
        """
        if not 0 <= wait_ms <= LONGEST_WAIT_MS:
            raise InvalidArgument(f"wait_ms must be between 0 and {LONGEST_WAIT_MS}.")
        found = await self._board.wait(project_id, operation_id, wait_ms / 1000)
        if found is None:
            raise unknown_operation(operation_id)
        if found.state == "queued":
            return None
        if found.state == "expired":
            raise _expired()
        try:
            return pb.Result.FromString(await self._blobs.get(found.result, found.result_key))
        except ObjectNotFound as error:
            raise _expired() from error

    async def cancel(self, project_id: str, operation_id: str) -> None:
        """Ends what a sampler was asked, where it still waits; raises NotFound."""
        if await self._runs.cancel(project_id, operation_id, CANCELLED):
            self._board.tell(project_id, [(operation_id, CANCELLED, "")])
        elif await self._board.wait(project_id, operation_id, 0) is None:
            raise unknown_operation(operation_id)

    async def _wanted(
        self, caller: Principal, request: pb.CreateRunRequest, metadata: dict[str, Any]
    ) -> tuple[str, dict[str, Any], str]:
        """Model and settings of a run, and the id of the checkpoint if that is lent."""
        models = self._trainer.base_models
        if not request.from_path:
            caller.require_model(request.base_model, "base_model")
            model = known_model(models, request.base_model)
            wish = request.settings
            settings = valid_settings(wish, model, is_full=option(metadata, FULL))
            self._full_parameters.require(model, settings, metadata)
            return model.name, settings, ""
        path = parse_path(request.from_path)
        if request.access:
            found = await self._checkpoints.lent(request.access, path)
        else:
            found = await self._checkpoints.find(reader_of(caller), path)
        caller.require_model(found.base_model, "path")
        if request.base_model not in ("", found.base_model):
            raise InvalidArgument("The checkpoint is of another model.", param="base_model")
        model = known_model(models, found.base_model)
        settings = dict(found.settings)
        self._full_parameters.require(model, settings, metadata)
        return model.name, settings, found.id if request.access else ""

    async def _in_engine(
        self, caller: Principal, request: pb.CreateRunRequest, run_id: str, metadata: dict[str, Any]
    ) -> dict[str, Any]:
        """The settings of a run whose engine is held from now on."""
        if request.from_path:
            raise InvalidArgument(
                f"A run with {IN_ENGINE} begins with its engine's weights, and with no checkpoint.",
                reason="not_in_engine",
                param="path",
            )
        settings = valid_settings(request.settings, engine_model(request.base_model), is_full=True)
        await self._engine_runs.begin(caller, request.base_model, run_id, metadata)
        return settings

    async def _require_run(self, caller: Principal, run_id: str) -> None:
        """Raises NotFound for a run of a model that the caller's key is not for.

        Raises PermissionDenied for one in an engine, where the caller may train none.
        """
        if not may_train_engines(caller):
            run = await self._runs.get(caller.require_project(), run_id)
            if in_engine(run.user_metadata):
                require_permission(caller)
        if caller.models is not None:
            base_model = await self._runs.base_model(caller.require_project(), run_id)
            caller.require_model(base_model, "model_id")

    async def _require_named(self, caller: Principal, wish: pb.Sampling) -> None:
        base_model = wish.base_model
        if wish.path:
            found = await self._checkpoints.find(reader_of(caller), parse_path(wish.path))
            base_model = found.base_model
        caller.require_model(base_model, "base_model")
        known_model(self._trainer.base_models, base_model)

    async def _with_loss(
        self, project_id: str, run_id: str, body: pb.OperationBody
    ) -> pb.OperationBody:
        """The body with the graph of the loss that it names: what the log has needs nothing else.

        One that is not its session's is refused in its place.
        """
        asked = body.forward_backward
        if asked.loss_fn != CUSTOM or LOSS_ID not in asked.loss_fn_config_v2:
            return body
        session_id = run_id.partition(":")[0]
        loss_id = asked.loss_fn_config_v2[LOSS_ID].text
        document = await self._losses.document(project_id, session_id, loss_id)
        if document is None:
            message = f"The session has no loss {loss_id[:64]!r}."
            return pb.OperationBody(refused=pb.Refused(message=message, reason="unknown_loss"))
        found = pb.OperationBody()
        found.CopyFrom(body)
        del found.forward_backward.loss_fn_config_v2[LOSS_ID]
        found.forward_backward.loss_fn_config_v2[GRAPH].text = document
        return found

    async def _new(
        self,
        caller: Principal,
        body: pb.OperationBody,
        *,
        slot: str | None,
        digest: bytes,
        run_id: str = "",
        sampler_id: str = "",
        seq_id: int = 0,
    ) -> NewOperation:
        operation_id = new_id("op_")
        project_id = caller.require_project()
        packed = body.SerializeToString()
        content, key = await self._blobs.put(packed, project_id, operation_id, "body")
        return NewOperation(
            id=operation_id,
            organization_id=caller.organization_id,
            project_id=project_id,
            run_id=run_id,
            sampler_id=sampler_id,
            seq_id=seq_id,
            slot=slot,
            digest=digest,
            body=content,
            body_key=key,
            body_bytes=len(packed),
            user_id=caller.user_id,
            key_id=caller.key_id,
        )

    async def _written(self, new: NewOperation, written: Written, topic: str) -> pb.Operation:
        if written.is_new:
            reach("tuning.written")
            self._board.expect(new.project_id, new.id)
            if new.lease_owner:
                self._desk.put(new, new.lease_owner)
            # Who holds the run looks at it anew before it answers what comes too late.
            elif written.is_late or not self._inboxes.offer(new.run_id, new):
                self._wake.touch(topic)
        else:
            await self._blobs.delete(new.body_key)
        return pb.Operation(id=written.id, run_id=new.run_id)


def _expired() -> FailedPrecondition:
    return FailedPrecondition(
        "The result is no longer kept; ask again.", reason="result_expired", param="request_id"
    )


def _without_access(request: pb.CreateRunRequest) -> pb.CreateRunRequest:
    """The request as a repeat has it: each time it is lent anew."""
    same = pb.CreateRunRequest()
    same.CopyFrom(request)
    same.ClearField("access")
    return same


def _digest(message: Any) -> bytes:
    return hashlib.sha256(message.SerializeToString(deterministic=True)).digest()
