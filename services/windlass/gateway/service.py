"""The servicer of what services ask of the token path: grades that models give."""

import asyncio
import hashlib
from collections import OrderedDict
from functools import partial
from typing import Any

import grpc
import msgspec

from windlass.api.gateway.v1 import gateway_pb2 as pb
from windlass.api.gateway.v1 import gateway_pb2_grpc as rpc
from windlass.api.runner.v1 import runner_pb2
from windlass.core.errors import AppError, InvalidArgument
from windlass.core.rpc.auth import Principal
from windlass.gateway.errors import HttpError, to_http
from windlass.gateway.inference.grading import graded, words
from windlass.gateway.inference.internal.chat import InternalChat
from windlass.gateway.inference.internal.completion import InternalCompletions
from windlass.gateway.inference.routes import RouteTable
from windlass.gateway.inference.scripts import PythonGraders
from windlass.graders import (
    Fault,
    Grader,
    JudgeQuestion,
    Subject,
    Ungradable,
    models_asked,
    parse,
)

# Of a whole batch; what is not graded by then is asked for again.
SECONDS = 60.0
# Answers of one batch that are graded at once.
AT_ONCE = 8
# Grades that are remembered for repeats of their batch.
REMEMBERED = 10_000
# What services that ask on behalf of a project need of its permissions.
_PERMISSIONS = frozenset({"inference.invoke", "models.read"})
_ASKED = (AppError, HttpError, grpc.aio.AioRpcError)


class GatewayInternalServicer(rpc.GatewayInternalServiceServicer):
    """GatewayInternalService."""

    def __init__(
        self,
        chat: InternalChat,
        scripts: PythonGraders,
        routes: RouteTable,
        completions: InternalCompletions,
        *,
        seconds: float = SECONDS,
    ):
        self._chat = chat
        self._scripts = scripts
        self._routes = routes
        self._completions = completions
        self._seconds = seconds
        self._remembered: OrderedDict[bytes, runner_pb2.Grade] = OrderedDict()

    async def Grade(self, request: pb.GradeRequest, context: Any) -> runner_pb2.GradeResponse:
        """Grades what can be graded in time, and says why the rest cannot."""
        grader = parse(msgspec.json.decode(request.grader))
        try:
            await self._scripts.admit(grader)
        except InvalidArgument as error:
            return runner_pb2.GradeResponse(refused=str(error))
        batch = _Batch(self._chat, self._scripts, request, grader)
        if not request.batch.answers:
            return await self._keep_ready(request.project_id, grader)
        answers = dict(enumerate(request.batch.answers))
        keys = {index: grade_key(request, answer) for index, answer in answers.items()}
        known = {index: self._remembered.get(key) for index, key in keys.items()}
        found = {index: grade for index, grade in known.items() if grade is not None}
        try:
            async with asyncio.timeout(self._seconds), asyncio.TaskGroup() as group:
                for index in answers.keys() - found.keys():
                    group.create_task(batch.grade(index, answers[index]))
        except TimeoutError:
            batch.pending = (
                batch.pending or f"The graders did not answer within {self._seconds:g} seconds."
            )
        for index, grade in batch.grades.items():
            self._remember(keys[index], grade)
        return runner_pb2.GradeResponse(
            grades=found | batch.grades,
            pending="" if batch.refused else batch.pending,
            refused=batch.refused,
        )

    async def Complete(self, request: pb.CompleteRequest, context: Any) -> pb.CompleteResponse:
        """Answers a completion, or says why it is refused."""
        caller = Principal(request.organization_id, request.project_id, permissions=_PERMISSIONS)
        try:
            body = await self._completions.complete(caller, request.body)
        except _ASKED as error:
            failure = to_http(error)
            return pb.CompleteResponse(status=failure.status, message=failure.message)
        return pb.CompleteResponse(status=200, body=body)

    async def _keep_ready(self, project_id: str, grader: Grader) -> runner_pb2.GradeResponse:
        for model in set(models_asked(grader).values()):
            try:
                await self._routes.want(project_id, model)
            except grpc.aio.AioRpcError as error:
                return runner_pb2.GradeResponse(pending=to_http(error).message)
        return runner_pb2.GradeResponse()

    def _remember(self, key: bytes, grade: runner_pb2.Grade) -> None:
        self._remembered[key] = grade
        if len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)


class _Batch:
    """The answers of one call, and what became of them."""

    def __init__(
        self, chat: InternalChat, scripts: PythonGraders, request: pb.GradeRequest, grader: Grader
    ):
        self._chat = chat
        self._run = partial(scripts.scores, request.project_id)
        self._grader = grader
        self._caller = Principal(
            request.organization_id, request.project_id, permissions=_PERMISSIONS
        )
        self._request_id = request.job_id
        self._room = asyncio.Semaphore(AT_ONCE)
        self.grades: dict[int, runner_pb2.Grade] = {}
        self.pending = ""
        self.refused = ""

    async def grade(self, index: int, answer: runner_pb2.Answer) -> None:
        """Notes the grade of an answer, or why it has none."""
        subject = Subject(answer.sample, msgspec.json.decode(answer.item))
        async with self._room:
            if self.refused:
                return
            try:
                found = await graded(self._grader, subject, self._ask, self._run)
            except _ASKED as error:
                failure = to_http(error)
                if failure.status in (401, 403, 404):
                    self.refused = failure.message
                else:
                    self.pending = failure.message
                return
        fault = next(iter(found.faults.values()), "")
        self.grades[index] = runner_pb2.Grade(reward=found.reward, fault=fault)

    async def _ask(self, question: JudgeQuestion) -> str | Ungradable:
        try:
            answer = await self._chat.complete(self._caller, self._request_id, question.body())
        except HttpError as error:
            # Such as an answer that is too long for the model that grades: another may not be.
            if error.status in (400, 413, 422):
                return Ungradable(Fault.OTHER, error.message)
            raise
        return words(answer)


def grade_key(request: pb.GradeRequest, answer: runner_pb2.Answer) -> bytes:
    """Returns a key that repeats of the same question share, and no others."""
    digest = hashlib.sha256()
    texts = (request.job_id, request.batch.batch, answer.sample)
    # A job's evaluation may have another grader than its rewards.
    for part in (*map(str.encode, texts), request.grader, answer.item):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()
