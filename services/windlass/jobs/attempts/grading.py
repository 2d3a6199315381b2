"""Grades for a job in training, where its grader asks models."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import grpc
import msgspec

from windlass import graders
from windlass.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from windlass.api.runner.v1 import runner_pb2
from windlass.core.errors import FailedPrecondition, InvalidArgument, ResourceExhausted, from_rpc
from windlass.jobs.domain.job import Job

ANSWERS = 32
SAMPLE_CHARACTERS = 2**20
BATCH_BYTES = 14 * 2**20
CALLS = 8
# The gateway answers within a minute what it has.
SECONDS = 90.0
_AWAY = "The gateway, which sends graders' questions to models, is not responding."


class Grading:
    """Passes a job's answers to the gateway, with the job's grader and in its project's name."""

    def __init__(self, gateway: gateway_pb2_grpc.GatewayInternalServiceAsyncStub | None):
        """`gateway` is None where this process knows of none: then no job has such a grader."""
        self._gateway = gateway
        self._calls: Counter[str] = Counter()

    @property
    def is_possible(self) -> bool:
        """True if jobs of this installation can ask models."""
        return self._gateway is not None

    async def grade(self, job: Job, batch: runner_pb2.GradeRequest) -> runner_pb2.GradeResponse:
        """The grades of a batch; raises InvalidArgument, FailedPrecondition, ResourceExhausted."""
        grader = _grader(job, batch)
        if not grader or not graders.models_asked(graders.parse(grader)) or self._gateway is None:
            raise FailedPrecondition(
                "The job has no grader that uses models.", reason="no_model_grader"
            )
        _check(batch)
        if self._calls[job.id] >= CALLS:
            raise ResourceExhausted(f"At most {CALLS} batches of a job may be graded at once.")
        self._calls[job.id] += 1
        try:
            request = gateway_pb2.GradeRequest(
                organization_id=job.organization_id,
                project_id=job.project_id,
                job_id=job.id,
                grader=msgspec.json.encode(grader),
                batch=batch,
            )
            response: runner_pb2.GradeResponse = await self._gateway.Grade(request, timeout=SECONDS)
            return response
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return runner_pb2.GradeResponse(pending=_AWAY)
            raise from_rpc(error) from error
        finally:
            self._calls[job.id] -= 1
            if not self._calls[job.id]:
                del self._calls[job.id]


def _grader(job: Job, batch: runner_pb2.GradeRequest) -> Mapping[str, Any]:
    if not batch.evaluation:
        return job.spec.grader
    return job.spec.evaluation.grader if job.spec.evaluation else {}


def _check(batch: runner_pb2.GradeRequest) -> None:
    if len(batch.answers) > ANSWERS or batch.ByteSize() > BATCH_BYTES:
        raise InvalidArgument(
            f"A batch may have at most {ANSWERS} answers and {BATCH_BYTES} bytes.", param="answers"
        )
    if len(batch.batch) > 64:
        raise InvalidArgument("A batch's name has at most 64 characters.", param="batch")
    for answer in batch.answers:
        if len(answer.sample) > SAMPLE_CHARACTERS:
            raise InvalidArgument(
                f"A sample has at most {SAMPLE_CHARACTERS} characters.", param="answers"
            )
        try:
            msgspec.json.decode(answer.item, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InvalidArgument("An item must be a JSON object.", param="answers") from error
