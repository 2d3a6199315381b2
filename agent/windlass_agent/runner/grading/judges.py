"""Grades by models, requested until they arrive."""

import asyncio
from collections.abc import Iterator, Sequence
from uuid import uuid4

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass_agent.runner.protocol.link import AgentLink, Rejected, backoff
from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.reporting.reporter import Reporter

PARAM = "method.reinforcement.grader"
_BATCH = 16
_BATCH_BYTES = 2 * 2**20
_READY_SECONDS = 30.0

Answer = tuple[str, bytes]


class Judges:
    """A grader that asks models of the platform: that of the job's rewards, or its evaluation's.

    `patience_seconds` is how long it goes without a single new grade.
    """

    def __init__(
        self,
        link: AgentLink,
        reporter: Reporter,
        *,
        name: str,
        patience_seconds: float,
        evaluation: bool = False,
    ) -> None:
        self._link = link
        self._reporter = reporter
        self._name = name
        self._evaluation = evaluation
        self._patience_seconds = patience_seconds

    async def keep_ready(self) -> None:
        """Keeps the models loaded between steps until cancelled."""
        while True:
            await self._link.grade(pb.GradeRequest())
            await asyncio.sleep(_READY_SECONDS)

    async def grades(self, answers: Sequence[Answer]) -> list[pb.Grade]:
        """Returns the grade of each answer, equal answers once; raises Failure, CallRefused."""
        batch = uuid4().hex
        found: dict[Answer, pb.Grade] = {}
        for part in _parts(list(dict.fromkeys(answers))):
            try:
                await self._grade(batch, part, found)
            except Rejected as error:
                raise self._failure(str(error)) from error
        return [found[answer] for answer in answers]

    async def _grade(self, batch: str, part: list[Answer], found: dict[Answer, pb.Grade]) -> None:
        loop = asyncio.get_running_loop()
        since, pauses, warned = loop.time(), backoff(), False
        while part:
            asked = [pb.Answer(sample=sample, item=item) for sample, item in part]
            response = await self._link.grade(
                pb.GradeRequest(batch=batch, answers=asked, evaluation=self._evaluation)
            )
            if response.refused:
                raise self._failure(response.refused)
            found.update((part[index], grade) for index, grade in response.grades.items())
            part = [answer for answer in part if answer not in found]
            if response.grades:
                since, pauses = loop.time(), backoff()
            elif loop.time() - since >= self._patience_seconds:
                raise self._failure(response.pending)
            elif not warned:
                warned = True
                self._reporter.warn(
                    f"The grader {self._name!r} is not available yet: {response.pending}"
                )
            if part:
                await pauses.pause()

    def _failure(self, why: str) -> Failure:
        return Failure(
            "grader_unavailable",
            f"The grader {self._name!r} could not be reached: {why}",
            param=PARAM,
        )


def _parts(answers: list[Answer]) -> Iterator[list[Answer]]:
    part: list[Answer] = []
    size = 0
    for answer in answers:
        # No character of UTF-8 has more than four bytes.
        length = 4 * len(answer[0]) + len(answer[1])
        if part and (len(part) == _BATCH or size + length > _BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(answer)
        size += length
    if part:
        yield part
