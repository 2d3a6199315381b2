"""Checks of what tenants ask, before anything is written."""

import secrets
from collections.abc import Sequence
from typing import Any

import orjson

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.core.rpc.auth import Principal
from windlass.tuning.domain import (
    ENDS,
    OPTIMIZERS,
    REPLICAS,
    Reader,
    unknown_base_model,
    valid_metadata,
    valid_name,
    valid_text,
    valid_ttl,
)
from windlass.tuning.storage.searching import SessionQuery
from windlass.tuning_api.trainers.records import TrainableModel

MAX_SEQ_ID = 2**31 - 1
# Of what samplers are asked, by all of their clients.
MAX_SAMPLE_SEQ_ID = 2**53
# Of a search.
MAX_TERMS = 16
MAX_SEED = 2**63 - 1


def reader_of(caller: Principal) -> Reader:
    """The project of a caller, as one that reads checkpoints."""
    return Reader(caller.organization_id, caller.require_project())


def known_model(models: Sequence[TrainableModel], name: str) -> TrainableModel:
    """The model of this name; raises InvalidArgument."""
    for model in models:
        if model.name == name:
            return model
    raise unknown_base_model(name, [model.name for model in models])


def valid_settings(
    settings: pb.RunSettings, model: TrainableModel, *, is_full: bool = False
) -> dict[str, Any]:
    """Settings of a run as its row has them; raises InvalidArgument.

    Whoever has every parameter trained has no rank: what clients send as one is passed over.
    """
    if is_full:
        return _full_settings(settings)
    if not 1 <= settings.rank <= model.max_rank:
        raise InvalidArgument(
            f"rank must be between 1 and {model.max_rank}.", param="lora_config.rank"
        )
    if settings.optimizer not in OPTIMIZERS:
        raise InvalidArgument(
            f"optimizer must be one of {', '.join(sorted(OPTIMIZERS))}.", param="optimizer_config"
        )
    if not (settings.train_attention or settings.train_mlp or settings.train_unembedding):
        raise InvalidArgument("Something must be trained.", param="lora_config")
    return _values(settings, settings.rank)


def _full_settings(settings: pb.RunSettings) -> dict[str, Any]:
    if settings.optimizer != "adamw":
        raise InvalidArgument(
            "All parameters are trained by adamw; dimuon is for adapters.",
            reason="unfit_optimizer",
            param="optimizer_config",
        )
    if not (settings.train_attention and settings.train_mlp and settings.train_unembedding):
        raise InvalidArgument("All parts are trained; leave none of them out.", param="lora_config")
    return _values(settings, 0)


def _values(settings: pb.RunSettings, rank: int) -> dict[str, Any]:
    values = {
        "rank": rank,
        "train_attention": settings.train_attention,
        "train_mlp": settings.train_mlp,
        "train_unembedding": settings.train_unembedding,
        "optimizer": settings.optimizer,
    }
    # One of ours where none is given: the beginning of a run can be made again.
    seed = settings.seed if settings.HasField("seed") else secrets.randbits(62)
    return values | {"seed": seed}


def placed(body: pb.OperationBody, seq_id: int) -> pb.OperationBody:
    """The body of an operation as the log takes it: what is wrong with it keeps its place.

    Raises InvalidArgument for what is no operation of a run, or has no possible place.
    """
    kind = body.WhichOneof("body")
    if kind in (None, "sampling", "open_run"):
        raise InvalidArgument("The operation is not one of a run.", param="body")
    # Nobody lends by saying so.
    if kind == "load_state":
        body.load_state.ClearField("lent_checkpoint_id")
    if not 0 <= seq_id <= MAX_SEQ_ID:
        raise InvalidArgument(f"seq_id must be between 0 and {MAX_SEQ_ID}.", param="seq_id")
    try:
        if kind == "save_state":
            _require_save(body.save_state.name, body.save_state)
        elif kind == "save_external":
            valid_name(body.save_external.name)
            valid_ttl(body.save_external.ttl_seconds)
        elif kind == "save_sampler":
            _require_sampler(body.save_sampler)
    except InvalidArgument as error:
        refused = pb.Refused(message=error.message, reason=error.reason)
        return pb.OperationBody(refused=refused)
    return body


def _require_sampler(saved: pb.SaveSampler) -> None:
    if bool(saved.name) == saved.HasField("sampler_number"):
        raise InvalidArgument(
            "Give either path or sampling_session_seq_id.", param="sampling_session_seq_id"
        )
    _require_save(saved.name or "sampler", saved)


def _require_save(name: str, saved: pb.SaveState | pb.SaveSampler) -> None:
    valid_name(name)
    valid_ttl(saved.ttl_seconds)
    valid_metadata(saved.user_metadata)


def session_query(request: pb.SearchSessionsRequest, *, alive_since: int) -> SessionQuery:
    """A search of sessions as the store takes it; raises InvalidArgument."""
    words = valid_text(request.display_name, "display_name").split()
    if max(len(words), len(request.user_ids)) > MAX_TERMS:
        raise InvalidArgument(f"A search has at most {MAX_TERMS} words, and users.")
    states = set(request.states)
    ends = set(request.ends) & ENDS
    if not ends and (request.ends or pb.SESSION_STATE_FINISHED in states):
        ends = set(ENDS)
    return SessionQuery(
        session_id=request.session_id,
        words=words,
        user_metadata=valid_metadata(request.user_metadata),
        user_ids=request.user_ids,
        is_active=pb.SESSION_STATE_ACTIVE in states,
        is_expired=pb.SESSION_STATE_EXPIRED in states,
        ends=ends,
        alive_since=alive_since,
    )


def merged(session: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Metadata of a run: its session's options hold for it where it says nothing else.

    Raises InvalidArgument for what only a session has.
    """
    options = {key: value for key, value in session.items() if key.startswith("windlass.")}
    if own.get(REPLICAS, options.get(REPLICAS)) != options.get(REPLICAS):
        raise InvalidArgument(f"{REPLICAS} is an option of sessions.", param="user_metadata")
    valid_metadata(orjson.dumps(options | own).decode())
    return options | own
