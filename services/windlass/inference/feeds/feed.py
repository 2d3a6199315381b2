"""A feed, the answers that it has kept, and when they may train; pure."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from windlass.api.inference.v1 import feeds_pb2 as pb
from windlass.api.inference.v1 import inference_pb2
from windlass.core.errors import InvalidArgument
from windlass.inference.domain import Serving
from windlass.inference.trainings.training import EngineTraining, body_of, checked, digest_of

HOUR_SECONDS = 3600.0
# Of one training: it fits into a request beside a guard.
MAX_TOKENS = 2**19
MAX_KEYS, MAX_HOURLY, MAX_BATCH, MAX_SCORE = 32, 10_000, 256, 1e6
MAX_GUARD_BYTES = 4 * 2**20
# Begins keys of trainings that feeds ask for; a caller's is printable.
_KEY = "\x03"
_RANK, _MAX_SECONDS = 64, 3600
# When some answers were taken for a training, and how many.
Spent = tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Settings of what trains a model's engine, who set them, and the fate of answers so far."""

    id: str
    organization_id: str
    project_id: str
    user_id: str
    key_id: str
    model: str
    key_ids: tuple[str, ...]
    # A JSON object.
    grader: bytes
    least_score: float
    hourly: int
    batch: int
    optimizer: str
    learning_rate: float
    # Serialized; empty for none.
    guard: bytes = b""
    spent: Spent = ()
    kept: int = 0
    refused: int = 0
    trained: int = 0
    removed: int = 0
    turned_away: int = 0
    message: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAnswer:
    """A kept answer; `score` is None until it is graded."""

    id: str
    key_id: str
    text: str = field(repr=False)
    item: bytes = field(repr=False)
    sample: bytes = field(repr=False)
    score: float | None = None


def checked_feed(request: pb.PutFeedRequest, mode: str) -> None:
    """Raises InvalidArgument, naming the field, for a feed that could train nothing."""
    keys = request.key_ids
    if not 1 <= len(keys) <= MAX_KEYS or len(set(keys)) < len(keys) or not all(keys):
        raise InvalidArgument(
            f"key_ids must be 1 to {MAX_KEYS} different ids of keys.", param="key_ids"
        )
    if not abs(request.least_score) <= MAX_SCORE:
        raise InvalidArgument(f"least_score must be within {MAX_SCORE:g}.", param="least_score")
    if not 1 <= request.batch <= MAX_BATCH:
        raise InvalidArgument(f"batch must be 1 to {MAX_BATCH}.", param="batch")
    if not request.batch <= request.hourly <= MAX_HOURLY:
        raise InvalidArgument(
            f"hourly must be at least batch, and at most {MAX_HOURLY}.", param="hourly"
        )
    sample = inference_pb2.TrainingSample(context_ids=[0], continuation_ids=[0])
    probe = _request(request, [sample])
    checked(probe, mode)
    if len(body_of(probe, "", mode)) > MAX_GUARD_BYTES:
        raise InvalidArgument(f"The guard exceeds {MAX_GUARD_BYTES} bytes.", param="guard")


def fits(sample: inference_pb2.TrainingSample, batch: int) -> bool:
    """Returns True for ids that can be trained, and are few enough for a training of so many."""
    context, continuation = sample.context_ids, sample.continuation_ids
    if not context or not continuation or min(min(context), min(continuation)) < 0:
        return False
    return len(context) + len(continuation) <= MAX_TOKENS // batch


def still_spent(spent: Spent, now: float) -> Spent:
    """Returns what counts against the hour that ends now."""
    return tuple(one for one in spent if now - one[0] < HOUR_SECONDS)


def seconds_until_room(feed: Feed, now: float) -> float:
    """Returns how long a feed has to wait until a batch more is within its hourly bound."""
    counted = sorted(still_spent(feed.spent, now))
    over = sum(number for _, number in counted) + feed.batch - feed.hourly
    for at, number in counted:
        if over <= 0:
            break
        over -= number
        if over <= 0:
            return at + HOUR_SECONDS - now
    return 0.0


def training_key(feed_id: str, answer_ids: Sequence[str]) -> str:
    """Returns the key of the one training of these answers."""
    digest = hashlib.sha256("\0".join(sorted(answer_ids)).encode()).hexdigest()
    return f"{key_prefix(feed_id)}{digest}"


def key_prefix(feed_id: str) -> str:
    """Returns what begins the keys of a feed's trainings."""
    return f"{_KEY}{feed_id} "


def training_of(
    feed: Feed, serving: Serving, key: str, answers: Sequence[FedAnswer], identifier: str
) -> EngineTraining:
    """The one step that answers are; raises InvalidArgument for what cannot be trained."""
    samples = [inference_pb2.TrainingSample.FromString(one.sample) for one in answers]
    request = _request(feed, samples)
    total, tokens = checked(request, serving.training)
    return EngineTraining(
        id=identifier,
        organization_id=feed.organization_id,
        project_id=feed.project_id,
        user_id=feed.user_id,
        key_id=feed.key_id,
        model=feed.model,
        version_id=serving.version_id,
        mode=serving.training,
        idempotency_key=key,
        digest=digest_of(request),
        body=body_of(request, identifier, serving.training),
        tokens=tokens,
        total_steps=total,
    )


def _request(
    of: Feed | pb.PutFeedRequest, samples: Sequence[inference_pb2.TrainingSample]
) -> inference_pb2.CreateEngineTrainingRequest:
    request = inference_pb2.CreateEngineTrainingRequest(
        model=of.model,
        samples=samples,
        learning_rate=of.learning_rate if math.isfinite(of.learning_rate) else -1,
        epochs=1,
        batch=len(samples),
        optimizer=of.optimizer,
        rank=_RANK,
        max_seconds=_MAX_SECONDS,
    )
    if isinstance(of, Feed):
        if of.guard:
            request.guard.ParseFromString(of.guard)
    elif of.HasField("guard"):
        request.guard.CopyFrom(of.guard)
    return request


def shown(feed: Feed, waiting: int) -> pb.Feed:
    """A feed as its project sees it."""
    found = outlined(feed, waiting)
    found.grader = feed.grader
    if feed.guard:
        found.guard.ParseFromString(feed.guard)
    return found


def outlined(feed: Feed, waiting: int) -> pb.Feed:
    """A feed in a list, without its grader and its guard, which may be large."""
    return pb.Feed(
        id=feed.id,
        model=feed.model,
        key_ids=feed.key_ids,
        least_score=feed.least_score,
        hourly=feed.hourly,
        batch=feed.batch,
        optimizer=feed.optimizer,
        learning_rate=feed.learning_rate,
        kept=feed.kept,
        refused=feed.refused,
        waiting=waiting,
        trained=feed.trained,
        removed=feed.removed,
        turned_away=feed.turned_away,
        message=feed.message,
        created_at=int(feed.created_at),
        updated_at=int(feed.updated_at),
    )
