"""Requests to train, checked before anything runs."""

import hashlib
import math
import secrets
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec

from windlass_vllm.losses.checking import checked_settings, datum_faults
from windlass_vllm.losses.datums import TinkerDatum
from windlass_vllm.messages import Guard, Mode, TokenSample, Train
from windlass_vllm.optimizers.settings import OptimizerSettings, apollo_mini
from windlass_vllm.refusal import Refused

MOST_BODY_BYTES = 16 * 2**20
_MOST_SAMPLES, _MOST_STEPS = 10_000, 100_000
_MOST_BATCH_TOKENS = 2**20
_MOST_LIMIT = 1e6
_MOST_GUARD_NUMBERS = 2**27

Beta = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class Bounds(msgspec.Struct, frozen=True):
    """Bounds of an engine: ids of its vocabulary, and tokens of its context."""

    vocabulary: int
    context: int


class AdamNumbers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers of AdamW, and the most that the norm of one step's gradients may be."""

    beta1: Beta = 0.9
    beta2: Beta = 0.999
    eps: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1e-6
    weight_decay: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    clip_norm: Annotated[float, msgspec.Meta(ge=0, le=1e15)] = 0.0
    """0 sets no bound."""


class TrainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /train`."""

    samples: Annotated[tuple[TokenSample, ...], msgspec.Meta(max_length=_MOST_SAMPLES)] = ()
    datums: Annotated[tuple[TinkerDatum, ...], msgspec.Meta(max_length=_MOST_SAMPLES)] = ()
    loss: str = ""
    """Loss of datums, summed over those of a step; samples have none."""
    loss_config: dict[str, float] = {}
    learning_rate: Annotated[float, msgspec.Meta(ge=0, le=10)] = 1e-5
    epochs: Annotated[int, msgspec.Meta(ge=1, le=_MOST_STEPS)] = 1
    batch: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    optimizer: Literal["apollo-mini", "apollo", "adamw", "sgd"] = "apollo-mini"
    rank: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64
    """Rank of APOLLO's projections; the other optimizers take none."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**32)] = 0
    mode: Mode = "hogwild"
    place_steps: Annotated[int, msgspec.Meta(ge=0, le=_MOST_STEPS)] = 0
    """Steps after which mode `shadow` puts its copy in place; 0 does so at the end alone."""
    save_steps: Annotated[int, msgspec.Meta(ge=0, le=_MOST_STEPS)] = 0
    """Steps after which a version is saved, from which the job can go on; 0 saves none."""
    guard: Guard | None = None
    max_seconds: Annotated[int, msgspec.Meta(ge=1, le=7 * 86400)] = 3600
    idempotency_key: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    forward_only: bool = False
    """Computes log-probabilities and losses of datums, and changes nothing."""
    one_step: bool = False
    """All datums are one step, whose gradients are summed from passes of `batch`."""
    continues: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """Of these two: the idempotency key of the request whose weights and optimizer it goes on from.

    It is refused where the weights are others by now."""
    adam: AdamNumbers | None = None
    """Of `adamw` in one step."""

    @property
    def steps(self) -> int:
        """Steps of the whole job."""
        if self.forward_only or self.one_step:
            return int(self.one_step)
        return self.epochs * -(-len(self.samples or self.datums) // self.batch)

    @property
    def settings(self) -> OptimizerSettings:
        """The optimizer that is asked for."""
        if self.optimizer == "apollo-mini":
            return apollo_mini(self.learning_rate, seed=self.seed)
        rate, seed = self.learning_rate, self.seed
        found = OptimizerSettings(
            kind=self.optimizer, learning_rate=rate, seed=seed, rank=self.rank
        )
        if (own := self.adam) is None:
            return found
        return msgspec.structs.replace(
            found, beta1=own.beta1, beta2=own.beta2, eps=own.eps, weight_decay=own.weight_decay
        )

    def work(self, name: str, number: int, model: str, run: str) -> Train:
        """Returns what the worker is asked for; raises Refused where versions have no folder."""
        if self.save_steps and not run:
            raise Refused("no_checkpoints", "save_steps: WINDLASS_VLLM_CHECKPOINTS is not set")
        return Train(
            job=name,
            number=number,
            samples=self.samples,
            datums=self.datums,
            loss=self.loss,
            settings=self.loss_config,
            epochs=self.epochs,
            batch=self.batch,
            optimizer=self.settings,
            mode=self.mode,
            save_steps=self.save_steps,
            place_steps=self.place_steps,
            guard=self.guard,
            model=model,
            run=run,
            forward_only=self.forward_only,
            one_step=self.one_step,
            continues=job_name(self.continues) if self.continues else "",
            clip_norm=self.adam.clip_norm if self.adam else 0.0,
        )


def read_request(body: bytes, bounds: Bounds) -> TrainRequest:
    """Returns a request that the engine can train on; raises Refused, naming the field."""
    try:
        request = msgspec.json.decode(body, type=TrainRequest)
    except msgspec.MsgspecError as error:
        raise Refused("invalid_request", str(error)) from error
    except (RecursionError, UnicodeDecodeError) as error:
        raise Refused("invalid_request", "the body is no JSON that can be read") from error
    request = _with_settings(request)
    if request.datums:
        _check_datums(request, bounds)
    else:
        _check_samples(request.samples, "samples", request.batch, bounds)
    _check_chained(request)
    if request.steps > _MOST_STEPS:
        raise Refused("invalid_request", f"epochs: {request.steps} steps exceed {_MOST_STEPS}")
    if request.place_steps and request.mode != "shadow":
        raise Refused("invalid_request", "place_steps: mode shadow alone puts copies in place")
    if request.guard:
        _check_guard(request.guard, request.batch, bounds)
    return request


def job_name(key: str | None) -> str:
    """Returns the name of the job of an idempotency key; without a key, one of its own."""
    if key is None:
        return f"train-{secrets.token_hex(12)}"
    return f"train-{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}"


def _check_chained(request: TrainRequest) -> None:
    """Refuses what single steps and passes do not have, and theirs of other requests."""
    if not (request.forward_only or request.one_step):
        for name in ("continues", "adam"):
            if getattr(request, name):
                raise Refused("invalid_request", f"{name}: of one_step and forward_only alone")
        return
    faults = {
        "one_step": request.forward_only and request.one_step,
        "datums": not request.datums,
        "mode": request.mode == "shadow",
        "epochs": request.epochs != 1,
        "guard": request.guard is not None,
        "save_steps": request.forward_only and request.save_steps > 0,
        "adam": request.adam is not None and request.optimizer != "adamw",
    }
    for name, is_fault in faults.items():
        if is_fault:
            raise Refused("invalid_request", f"{name}: a pass or a single step has no such one")


def _with_settings(request: TrainRequest) -> TrainRequest:
    """The request with all settings of its loss; raises Refused unless it has one form."""
    if request.samples and request.datums:
        raise Refused("invalid_request", "datums: a request has samples or datums, not both")
    if not request.samples and not request.datums:
        raise Refused("invalid_request", "samples: at least one, or one of datums")
    if request.samples and (request.loss or request.loss_config):
        raise Refused("invalid_request", "loss: samples have their own")
    if request.samples:
        return request
    settings = checked_settings(request.loss, request.loss_config)
    return msgspec.structs.replace(request, loss_config=settings)


def _check_datums(request: TrainRequest, bounds: Bounds) -> None:
    loss, (vocabulary, context) = request.loss, msgspec.structs.astuple(bounds)
    faults = (datum_faults(one, loss, vocabulary, context) for one in request.datums)
    _refuse(faults, "datums")
    _check_longest(max(one.length for one in request.datums), request.batch)


def _check_samples(
    samples: tuple[TokenSample, ...], field: str, batch: int, bounds: Bounds
) -> None:
    _refuse((_faults(one, bounds) for one in samples), field)
    _check_longest(max(one.length for one in samples), batch)


def _refuse(faults: Iterable[Iterator[tuple[str, str]]], field: str) -> None:
    for number, found in enumerate(faults):
        for inner, message in found:
            raise Refused("invalid_request", f"{field}[{number}].{inner}: {message}")


def _check_longest(longest: int, batch: int) -> None:
    if batch * longest > _MOST_BATCH_TOKENS:
        raise Refused("invalid_request", f"batch: a step exceeds {_MOST_BATCH_TOKENS} tokens")


def _check_guard(guard: Guard, batch: int, bounds: Bounds) -> None:
    """Refuses limits that are no numbers, and sets whose distributions would fill the memory."""
    _check_samples(guard.samples, "guard.samples", batch, bounds)
    for field in ("max_loss", "max_kl"):
        most = getattr(guard, field)
        if most is not None and not 0 <= most <= _MOST_LIMIT:
            raise Refused("invalid_request", f"guard.{field}: from 0 to {_MOST_LIMIT:g}")
    tokens = sum(len(one.continuation_ids) for one in guard.samples)
    if tokens * bounds.vocabulary > _MOST_GUARD_NUMBERS:
        most = _MOST_GUARD_NUMBERS // bounds.vocabulary
        raise Refused("invalid_request", f"guard.samples: {tokens} tokens exceed {most}")


def _faults(sample: TokenSample, bounds: Bounds) -> Iterator[tuple[str, str]]:
    for field in ("context_ids", "continuation_ids"):
        ids = getattr(sample, field)
        if not ids:
            yield field, "at least one id"
        elif min(ids) < 0 or max(ids) >= bounds.vocabulary:
            yield field, f"ids are from 0 up to {bounds.vocabulary}"
    if sample.length > bounds.context:
        yield "continuation_ids", f"{sample.length} tokens exceed a context of {bounds.context}"
    if (weights := sample.weights) is None:
        return
    if len(weights) != len(sample.continuation_ids):
        yield "weights", "one for each id of the continuation"
    elif not all(math.isfinite(one) and 0 <= one <= 1e6 for one in weights) or not any(weights):
        yield "weights", "from 0 to 1e6, one of them above 0"
