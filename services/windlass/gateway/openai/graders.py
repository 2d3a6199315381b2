"""/v1/fine_tuning/alpha/graders: whether a grader is one, and what it makes of an answer."""

import asyncio
import time
from collections import Counter
from functools import partial
from typing import Any

import msgspec
from fastapi import Request

from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.gateway.errors import HttpError
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.grading import graded, words
from windlass.gateway.inference.internal.chat import InternalChat
from windlass.gateway.inference.scripts import PythonGraders
from windlass.gateway.openai.rendering import Json
from windlass.gateway.parameters import Body
from windlass.gateway.resource_router import ResourceRouter
from windlass.graders import (
    Fault,
    Grade,
    Grader,
    InvalidGrader,
    JudgeQuestion,
    Subject,
    Ungradable,
    parse,
    to_document,
)

# As for a job that is to be graded.
_PERMISSION = "jobs.write"
_SAMPLE = _ITEM = 1 << 20
# With a source of 256,000 bytes, as JSON has it.
_GRADER = 1 << 19


class ValidateGrader(Body):
    """A grader to look at."""

    grader: dict[str, Any]


class RunGrader(ValidateGrader):
    """A grader, and what it is to grade."""

    model_sample: str
    item: dict[str, Any] | None = None


def graders_router(chat: InternalChat, scripts: PythonGraders) -> ResourceRouter:
    """Graders."""
    router = ResourceRouter(prefix="/fine_tuning/alpha/graders", tags=["fine-tuning"])

    @router.post("/validate")
    async def validate_grader(body: ValidateGrader, request: Request) -> Json:
        """Returns the grader as it is understood, or names the field that is not."""
        _exchange(request)
        grader = await asyncio.to_thread(_read, body)
        await scripts.admit(grader)
        return {"grader": to_document(grader)}

    @router.post("/run")
    async def run_grader(body: RunGrader, request: Request) -> Json:
        """Grades one answer; the models that a grader asks count as the caller's requests."""
        exchange, began = _exchange(request), time.perf_counter()
        grader = await asyncio.to_thread(_read, body)
        await scripts.admit(grader)
        subject = Subject(body.model_sample, body.item or {})
        usage: dict[str, Counter[str]] = {}

        async def ask(question: JudgeQuestion) -> str | Ungradable:
            return await _ask(chat, exchange, question, usage)

        run = partial(scripts.scores, exchange.caller.require_project())
        found = await graded(grader, subject, ask, run)
        return _rendered(grader, found, usage, seconds=time.perf_counter() - began)

    return router


def _exchange(request: Request) -> HttpExchange:
    """The exchange of a caller who may do this; raises PermissionDenied."""
    exchange: HttpExchange = request.scope["state"]["exchange"]
    caller: Principal = exchange.caller
    if not caller.may(_PERMISSION):
        raise PermissionDenied(f"This needs the permission {_PERMISSION}.")
    return exchange


def _read(body: ValidateGrader) -> Grader:
    _check_size(body.grader, _GRADER, "grader")
    if isinstance(body, RunGrader):
        _check_size(body.model_sample, _SAMPLE, "model_sample")
        _check_size(body.item, _ITEM, "item")
    try:
        return parse(body.grader)
    except InvalidGrader as error:
        raise InvalidArgument(str(error), param=error.field) from None


def _check_size(value: object, most: int, param: str) -> None:
    """Raises InvalidArgument for what is no text of JSON, or a longer one than `most` bytes."""
    try:
        size = len(msgspec.json.encode(value))
    except (UnicodeEncodeError, RecursionError):
        raise InvalidArgument(
            f"{param} contains half of a surrogate pair, or is nested too deeply.", param=param
        ) from None
    if size > most:
        raise InvalidArgument(f"{param} exceeds {most} bytes.", param=param)


async def _ask(
    chat: InternalChat,
    exchange: HttpExchange,
    question: JudgeQuestion,
    usage: dict[str, Counter[str]],
) -> str | Ungradable:
    """The model's words, or what went wrong with it; raises what the caller can mend."""
    try:
        answer = await chat.complete(exchange.caller, exchange.request_id, question.body())
    except HttpError as error:
        if error.status in (500, 502, 504):
            return Ungradable(Fault.MODEL_SERVER, error.message)
        raise
    if answer.usage is not None:
        tokens = usage.setdefault(question.model, Counter())
        tokens.update(msgspec.structs.asdict(answer.usage))
    return words(answer)


def _rendered(
    grader: Grader, found: Grade, usage: dict[str, Counter[str]], *, seconds: float
) -> Json:
    document = to_document(grader)
    total = sum(tokens["total_tokens"] for tokens in usage.values())
    return {
        "reward": found.reward,
        "sub_rewards": dict(found.scores) if document["type"] == "multi" else {},
        "metadata": {
            "name": document["name"],
            "type": document["type"],
            "errors": _errors(found),
            "execution_time": seconds,
            "scores": dict(found.scores),
            "token_usage": total if usage else None,
            "sampled_model_name": document.get("model"),
        },
        "model_grader_token_usage_per_model": {
            model: dict(tokens) for model, tokens in usage.items()
        },
    }


def _errors(found: Grade) -> Json:
    """OpenAI's flags; `windlass` has a sentence for each that is set."""
    of_server = found.faults.get(Fault.PYTHON_SERVER, "")
    return {
        **{fault.value: fault in found.faults for fault in Fault},
        "model_grader_server_error_details": found.faults.get(Fault.MODEL_SERVER),
        "python_grader_runtime_error_details": found.faults.get(Fault.PYTHON_RUNTIME),
        # `timeout`, `exit`, `protocol` or `start`.
        "python_grader_server_error_type": of_server.partition(":")[0] or None,
        # What no grader here does.
        "truncated_observation_error": False,
        "unresponsive_reward_error": False,
        "windlass": {fault.value: message for fault, message in found.faults.items()},
    }
