"""/v1/engines/…: trainings of engines in their own memory, and checkpoints of their weights."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from typing import Annotated

import orjson
from fastapi import Header, Query, Request
from fastapi.responses import StreamingResponse

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.inference.v1 import inference_pb2_grpc as rpc
from windlass.core.app import App
from windlass.gateway.admin.engines.training_bodies import CheckpointEngine, TrainEngine
from windlass.gateway.errors import to_http
from windlass.gateway.openai.following import BEAT_SECONDS, Followed, while_allowed
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import INT64, After, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter
from windlass.modelfiles.naming import MODEL_NAME_LENGTH

READ = "models.read"


def engine_trainings_router(app: App) -> ResourceRouter:
    """Trainings of engines."""
    router = ResourceRouter(prefix="/engines", tags=["models"])
    inference = app.clients.stub(rpc.InferenceServiceStub)

    @router.get("/trainings")
    async def list_engine_trainings(
        after: After = "",
        limit: Limit = 0,
        model: Annotated[str, Query(max_length=MODEL_NAME_LENGTH)] = "",
    ) -> Json:
        """Lists the project's trainings and checkpoints of engines, newest first."""
        answer = await inference.ListEngineTrainings(
            pb.ListEngineTrainingsRequest(after=after, limit=limit, model=model)
        )
        return page([_render(one) for one in answer.trainings], answer.has_more)

    @router.get("/trainings/{training_id}")
    async def retrieve_engine_training(training_id: str) -> Json:
        """Returns a training or a checkpoint of an engine."""
        request = pb.GetEngineTrainingRequest(id=training_id)
        return _render(await inference.GetEngineTraining(request))

    @router.get("/trainings/{training_id}/steps", response_class=StreamingResponse)
    async def follow_engine_training(
        training_id: str,
        request: Request,
        after: Annotated[int, Query(ge=0, le=INT64)] = 0,
        last_event_id: Annotated[str, Header(pattern="^[0-9]{0,18}$")] = "",
    ) -> StreamingResponse:
        """Steps of a training, server-sent, live until it has ended; at last the training, and
        `[DONE]`. A stream goes on after `Last-Event-ID`, or else after `after`.
        """
        seen = int(last_event_id or after)
        told = inference.WatchEngineTraining(
            pb.WatchEngineTrainingRequest(id=training_id, after=seen)
        )
        # A refusal comes now, while a status can still say so.
        await told.wait_for_connection()
        allowed = while_allowed(request.scope["state"]["exchange"], READ, told)
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        return Followed(
            told, _server_sent(allowed), media_type="text/event-stream", headers=headers
        )

    @router.post("/trainings/{training_id}/cancel")
    async def cancel_engine_training(training_id: str) -> Json:
        """Ends a training at its next step; what it has learned stays."""
        request = pb.CancelEngineTrainingRequest(id=training_id)
        return _render(await inference.CancelEngineTraining(request))

    # Names may have slashes.
    @router.post("/{model:path}/train")
    async def train_engine(model: str, body: TrainEngine) -> Json:
        """Trains the engine of a model while it serves; it answers at once."""
        message = await asyncio.to_thread(body.to_message, model)
        return _render(await inference.CreateEngineTraining(message))

    @router.post("/{model:path}/checkpoint")
    async def checkpoint_engine(model: str, body: CheckpointEngine) -> Json:
        """Makes the weights of a model's engine, as it has learned them, a model of its own."""
        request = pb.CreateEngineCheckpointRequest(
            model=model, suffix=body.suffix, idempotency_key=body.idempotency_key
        )
        return _render(await inference.CreateEngineCheckpoint(request))

    return router


def _render(training: pb.EngineTraining) -> Json:
    return plain(training, "engine.training")


async def _server_sent(told: AsyncIterable[pb.EngineTrainingProgress]) -> AsyncIterator[bytes]:
    """Steps as events with their numbers as ids; a failure is an event as well."""
    iterator = aiter(told)
    coming = asyncio.ensure_future(anext(iterator, None))
    last = None
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=BEAT_SECONDS)
            if not done:
                yield b": still here\n\n"
                continue
            if (progress := coming.result()) is None:
                break
            last = progress.training
            for step in progress.steps:
                data = orjson.dumps(plain(step, "engine.training.step"))
                yield b"id: %d\ndata: %b\n\n" % (step.step, data)
            coming = asyncio.ensure_future(anext(iterator, None))
        if last is not None:
            yield b"data: %b\n\n" % orjson.dumps(_render(last))
        yield b"data: [DONE]\n\n"
    except Exception as error:
        yield b"data: %b\n\n" % to_http(error).body()
    finally:
        coming.cancel()
