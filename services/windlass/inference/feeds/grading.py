"""Grades of kept answers, by the gateway, in the name of the feed's project."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import grpc
import msgspec

from windlass import graders
from windlass.api.gateway.v1 import gateway_pb2
from windlass.api.gateway.v1.gateway_pb2_grpc import GatewayInternalServiceAsyncStub
from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.api.runner.v1 import runner_pb2
from windlass.core.errors import FailedPrecondition, InvalidArgument, NotFound, from_rpc
from windlass.inference.feeds.feed import FedAnswer, Feed

# Of one call, as of a job's.
AT_ONCE, BATCH_BYTES = 32, 14 * 2**20
MAX_GRADER_BYTES = 1 << 19
# The gateway answers within a minute what it has.
SECONDS = 90.0
_AWAY = "The gateway, which grades answers, is not responding."


@dataclass(frozen=True)
class Grades:
    """Scores by the ids of answers, None for what cannot be graded; why others are missing."""

    scores: Mapping[str, float | None] = field(default_factory=dict)
    message: str = ""


class FeedGrading:
    """Has the gateway grade."""

    def __init__(
        self,
        gateway: GatewayInternalServiceAsyncStub | None,
        models: ModelsInternalServiceAsyncStub,
    ):
        """`gateway` is None where this process knows of none: then no feed can be set."""
        self._gateway = gateway
        self._models = models

    async def admit(self, organization_id: str, project_id: str, document: bytes) -> None:
        """Raises InvalidArgument for a grader that cannot grade here, FailedPrecondition."""
        grader = _parsed(document)
        for path, model in graders.models_asked(grader).items():
            await self._require_model(project_id, model, f"grader.{path}")
        if self._gateway is None:
            raise FailedPrecondition(_AWAY, reason="grading_unavailable")
        request = gateway_pb2.GradeRequest(
            organization_id=organization_id, project_id=project_id, grader=document
        )
        answer: runner_pb2.GradeResponse = await self._gateway.Grade(request, timeout=SECONDS)
        if answer.refused:
            raise InvalidArgument(answer.refused, param="grader")

    async def grade(self, feed: Feed, found: Sequence[FedAnswer]) -> Grades:
        """Grades what can be graded in time; raises what the gateway refuses."""
        if self._gateway is None:
            return Grades(message=_AWAY)
        asked: list[FedAnswer] = []
        room = BATCH_BYTES
        for one in found[:AT_ONCE]:
            room -= len(one.text.encode()) + len(one.item)
            if room < 0:
                break
            asked.append(one)
        request = gateway_pb2.GradeRequest(
            organization_id=feed.organization_id,
            project_id=feed.project_id,
            job_id=feed.id,
            grader=feed.grader,
            batch=runner_pb2.GradeRequest(
                answers=[runner_pb2.Answer(sample=one.text, item=one.item) for one in asked]
            ),
        )
        try:
            answer: runner_pb2.GradeResponse = await self._gateway.Grade(request, timeout=SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return Grades(message=_AWAY)
            raise from_rpc(error) from error
        scores = {
            asked[index].id: None if one.fault else one.reward
            for index, one in answer.grades.items()
            if 0 <= index < len(asked)
        }
        return Grades(scores, answer.refused or answer.pending)

    async def _require_model(self, project_id: str, model: str, param: str) -> None:
        request = models_pb2.ResolveModelRequest(project_id=project_id, id=model)
        try:
            await self._models.ResolveModel(request)
        except grpc.aio.AioRpcError as error:
            refusal = from_rpc(error)
            if isinstance(refusal, NotFound):
                raise InvalidArgument(refusal.message, param=param) from error
            raise refusal from error


def _parsed(document: bytes) -> graders.Grader:
    """Reads a grader; raises InvalidArgument that names the field."""
    if len(document) > MAX_GRADER_BYTES:
        raise InvalidArgument(f"grader exceeds {MAX_GRADER_BYTES} bytes.", param="grader")
    try:
        return graders.parse(msgspec.json.decode(document, type=dict))
    except graders.InvalidGrader as error:
        raise InvalidArgument(str(error), param=error.field) from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise InvalidArgument("grader must be a JSON object.", param="grader") from None
