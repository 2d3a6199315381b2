"""Rows of tuning as messages of the contract."""

from typing import Any

import orjson
import sqlalchemy as sa

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core.clock import now_seconds
from windlass.tuning.domain import CheckpointPath
from windlass.tuning_api.trainers.records import TrainableModel

Row = sa.Row[Any]


def session(
    row: Row, *, expires_after: int, run_ids: list[str], sampler_ids: list[str]
) -> pb.Session:
    """A session, expired if nothing was heard of it for `expires_after` seconds."""
    state = pb.SESSION_STATE_ACTIVE
    if row.end:
        state = pb.SESSION_STATE_FINISHED
    elif row.heartbeat_at < now_seconds() - expires_after:
        state = pb.SESSION_STATE_EXPIRED
    return pb.Session(
        id=row.id,
        state=state,
        created_at=row.created_at,
        user_metadata=_json(row.user_metadata),
        display_name=row.display_name,
        run_ids=run_ids,
        sampler_ids=sampler_ids,
        end=row.end,
        user_id=row.user_id,
        detail=row.detail,
    )


def run(row: Row, model: TrainableModel | None) -> pb.Run:
    """A run, with what a client asks of its model where that is still there."""
    return pb.Run(
        id=row.id,
        session_id=row.session_id,
        base_model=row.base_model,
        settings=pb.RunSettings(**row.settings),
        user_metadata=_json(row.user_metadata),
        created_at=row.created_at,
        last_request_at=row.last_request_at,
        state=row.state,
        tokenizer_id=model.tokenizer_id if model else "",
        architecture=model.architecture if model else "",
        user_id=row.user_id,
        device_time_ms=row.device_time_ms,
    )


def sampler(row: Row) -> pb.Sampler:
    """A sampler."""
    return pb.Sampler(id=row.id, base_model=row.base_model, path=row.path)


def checkpoint(row: Row) -> pb.Checkpoint:
    """A named checkpoint."""
    path = CheckpointPath(row.run_id, row.is_for_sampler, row.name, row.is_external)
    return pb.Checkpoint(
        id=path.id,
        run_id=row.run_id,
        path=str(path),
        created_at=row.created_at,
        bytes=row.size,
        expires_at=row.expires_at,
        user_metadata=_json(row.user_metadata),
        base_model=row.base_model,
        settings=pb.RunSettings(**row.settings),
        for_sampler=row.is_for_sampler,
        published=row.is_published,
        external=row.is_external,
    )


def _json(metadata: dict[str, Any]) -> str:
    return orjson.dumps(metadata).decode()
