"""Grading of an answer with the models and the programs that its grader uses."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from windlass.gateway.inference.internal.chat import Completion
from windlass.graders import (
    Fault,
    Grade,
    Grader,
    JudgeQuestion,
    Subject,
    Ungradable,
    grade,
    questions,
)

Ask = Callable[[JudgeQuestion], Awaitable[str | Ungradable]]
Run = Callable[[Grader, Subject], Awaitable[Mapping[str, float | Ungradable]]]


async def graded(grader: Grader, subject: Subject, ask: Ask, run: Run) -> Grade:
    """Returns the grade of a subject; raises what `ask` and `run` raise."""
    scores = await run(grader, subject)
    answers = {name: await ask(question) for name, question in questions(grader, subject).items()}
    return await asyncio.to_thread(grade, grader, subject, {**scores, **answers})


def words(answer: Completion) -> str | Ungradable:
    """A model's answer to a question, or its refusal."""
    if answer.message.refusal:
        return Ungradable(Fault.MODEL_REFUSAL, answer.message.refusal)
    return answer.message.content or ""
