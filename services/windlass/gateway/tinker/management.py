"""Runs and checkpoints as things to look after, and what of the SDK is not served."""

from typing import Any

from windlass.api.tuning.v1 import seats_pb2 as seats_pb
from windlass.api.tuning.v1 import seats_pb2_grpc as seats_rpc
from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.api.tuning.v1 import tuning_pb2_grpc as rpc
from windlass.gateway.tinker.bodies import PathNameBody, TtlBody
from windlass.gateway.tinker.errors import TinkerError
from windlass.gateway.tinker.requests import TinkerRequest
from windlass.gateway.tinker.routing import CHECKPOINT, Answer, TinkerRoute, refused, route
from windlass.gateway.tinker.sessions import page_of, texts, time_text

# What the SDK can ask beside, by its own words.
NOT_SERVED = (
    refused("POST", "auth/token", "A JWT"),
    refused("GET", "billing/usage/events", "Billing"),
    refused("GET", "billing/usage/checkpoints/current", "Billing of checkpoints"),
)


class ManagementRoutes:
    """Routes of runs, checkpoints and seats on devices."""

    def __init__(self, tuning: rpc.TuningServiceAsyncStub, seats: seats_rpc.SeatsServiceAsyncStub):
        self._tuning = tuning
        self._seats = seats

    def routes(self) -> tuple[TinkerRoute, ...]:
        """Every route, those that are refused first."""
        return (
            *NOT_SERVED,
            route("POST", "weights_info", self._weights_info),
            route("GET", "training_runs", self._runs),
            route("GET", "training_runs/{run_id}", self._run),
            route("GET", "training_runs/{run_id}/checkpoints", self._checkpoints),
            route("PUT", CHECKPOINT + "/ttl", self._keep),
            route("DELETE", CHECKPOINT, self._delete),
            route("GET", "checkpoints", self._checkpoints),
            route("GET", "seats", self._list_seats),
        )

    async def _list_seats(self, request: TinkerRequest) -> Answer:
        wanted = seats_pb.ListSeatsRequest(
            after=request.query.get("after", ""), limit=page_of(request, 100)[0]
        )
        found = await self._seats.ListSeats(wanted)
        return {
            "devices": [_device_json(one) for one in found.devices],
            "seats": [_seat_json(one) for one in found.seats],
            "has_more": found.has_more,
        }

    async def _weights_info(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(PathNameBody)
        found = await self._tuning.GetCheckpoint(pb.GetCheckpointRequest(path=asked.tinker_path))
        settings = found.settings
        return {
            "base_model": found.base_model,
            "is_lora": settings.rank > 0,
            "lora_rank": settings.rank,
            "train_unembed": settings.train_unembedding,
            "train_mlp": settings.train_mlp,
            "train_attn": settings.train_attention,
            "optimizer_config": {"type": settings.optimizer},
        }

    async def _runs(self, request: TinkerRequest) -> Answer:
        limit, offset = page_of(request, 20)
        found = await self._tuning.ListRuns(pb.ListRunsRequest(limit=limit, offset=offset))
        return {
            "training_runs": [_run_json(run) for run in found.runs],
            "cursor": {"offset": offset, "limit": limit, "total_count": found.total},
        }

    async def _run(self, request: TinkerRequest) -> Answer:
        wanted = pb.GetRunRequest(run_id=request.names["run_id"])
        return _run_json(await self._tuning.GetRun(wanted))

    async def _checkpoints(self, request: TinkerRequest) -> Answer:
        limit, offset = page_of(request, 100)
        found = await self._tuning.ListCheckpoints(
            pb.ListCheckpointsRequest(
                run_id=request.names.get("run_id", ""), limit=limit, offset=offset
            )
        )
        return {
            "checkpoints": [_checkpoint_json(one) for one in found.checkpoints],
            "cursor": {"offset": offset, "limit": limit, "total_count": found.total},
        }

    async def _keep(self, request: TinkerRequest) -> Answer:
        names, asked = request.names, request.decoded(TtlBody)
        seconds = asked.ttl_seconds
        if seconds is not None and not 0 < seconds < 2**40:
            raise TinkerError(400, "ttl_seconds is out of range.", code="invalid_value")
        await self._tuning.KeepCheckpoint(
            pb.KeepCheckpointRequest(
                run_id=names["run_id"],
                checkpoint_id=names["checkpoint_id"],
                ttl_seconds=seconds or 0,
            )
        )
        return None

    async def _delete(self, request: TinkerRequest) -> Answer:
        names = request.names
        await self._tuning.DeleteCheckpoint(
            pb.DeleteCheckpointRequest(run_id=names["run_id"], checkpoint_id=names["checkpoint_id"])
        )
        return None


def _run_json(run: pb.Run) -> dict[str, Any]:
    return {
        "training_run_id": run.id,
        "base_model": run.base_model,
        "model_owner": run.user_id,
        "is_lora": run.settings.rank > 0,
        "corrupted": run.state == "lost",
        "lora_rank": run.settings.rank,
        "last_request_time": time_text(run.last_request_at),
        "user_metadata": texts(run.user_metadata),
        "device_seconds": run.device_time_ms / 1000,
    }


def _checkpoint_json(checkpoint: pb.Checkpoint) -> dict[str, Any]:
    return {
        "checkpoint_id": checkpoint.id,
        "checkpoint_type": _kind(checkpoint),
        "time": time_text(checkpoint.created_at),
        "tinker_path": checkpoint.path,
        "size_bytes": checkpoint.bytes,
        "public": checkpoint.published,
        "user_metadata": texts(checkpoint.user_metadata),
        "expires_at": time_text(checkpoint.expires_at) if checkpoint.expires_at else None,
    }


def _kind(checkpoint: pb.Checkpoint) -> str:
    if checkpoint.external:
        return "external"
    return "sampler" if checkpoint.for_sampler else "training"


def _device_json(device: seats_pb.Device) -> dict[str, Any]:
    return {
        "id": device.id,
        "host": device.host,
        "name": device.name,
        "device_bytes": device.device_bytes,
        "host_bytes": device.host_bytes,
        "max_residents": device.max_residents,
        "devices": device.devices,
        "project_id": device.project_id or None,
        "queue": device.queue or None,
    }


def _seat_json(seat: seats_pb.Seat) -> dict[str, Any]:
    return {
        "id": seat.id,
        "device": seat.device or None,
        "host": seat.host,
        "base_model": seat.workload,
        "role": seat.role,
        "project_id": seat.project_id or None,
        "device_bytes": seat.device_bytes,
        "host_bytes": seat.host_bytes,
        "state": seat.state,
        "reason": seat.reason or None,
        "created_at": seat.created_at,
        "asked_at": seat.asked_at or None,
        "turn_project_id": seat.turn_project_id or None,
        "turns": seat.turns,
    }
