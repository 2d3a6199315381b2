"""Output constraints of a chat request: a response format or tool calls."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from windlass.inference_api.errors import (
    bad_value,
    invalid_schema,
    overloaded,
    unsupported,
)
from windlass.inference_api.formats import ResponseFormat
from windlass.inference_api.requests import ChatRequest
from windlass.inference_api.tools import Function, wanted
from windlass_agent.engines.builtin.constraints import Constraint, InvalidSchema, json_grammar
from windlass_agent.engines.builtin.constraints.compiling import Overloaded
from windlass_agent.engines.builtin.constraints.formats import format_rule
from windlass_agent.engines.builtin.service import EngineService
from windlass_agent.engines.builtin.text.detokenize import Decode
from windlass_agent.engines.builtin.tools.format import ToolFormat
from windlass_agent.engines.builtin.tools.grammar import calls_grammar
from windlass_agent.engines.builtin.tools.parsing import ToolCallParser

_FORMAT = "response_format"


@dataclass(frozen=True, kw_only=True)
class Held:
    """Settings by which the answers to one request are generated and parsed."""

    tools: list[dict[str, Any]] | None = None
    constraint: Constraint | None = None
    decode: Decode | None = None
    parser: Callable[[], ToolCallParser] | None = None


async def held(service: EngineService, body: ChatRequest) -> Held:
    """Compiles what `body` asks for; raises ApiError, before anything is generated."""
    wish = wanted(body.tools, body.tool_choice)
    if body.parallel_tool_calls is not None and not body.tools:
        raise bad_value(
            "parallel_tool_calls is only allowed when tools are specified.", "parallel_tool_calls"
        )
    rule = _rule(body.response_format)
    if not wish.functions:
        constraint = await _compile(service, body, f"start: {rule}", _FORMAT) if rule else None
        return Held(constraint=constraint)
    style = await _style(service)
    parallel = body.parallel_tool_calls is not False
    special = {
        text: number
        for text, number in service.model.tokenizer.special_tokens().items()
        if any(
            text in part for part in (style.opening, style.middle, style.link or "", style.closing)
        )
    }
    constraint = None
    if wish.forced or rule or any(function.strict for _, function in wish.functions):
        functions = [
            (function.name, await _arguments(service, index, function))
            for index, function in wish.functions
        ]
        grammar = calls_grammar(
            style,
            functions,
            special=special,
            parallel=parallel,
            otherwise=None if wish.forced else rule or "TEXT",
        )
        constraint = await _compile(service, body, grammar, _FORMAT if rule else "tools")
    names = [function.name for _, function in wish.functions]
    return Held(
        tools=[function.told() for _, function in wish.functions],
        constraint=constraint,
        decode=service.model.tokenizer.decode_with(special.values()),
        parser=lambda: ToolCallParser(style, names, single=not parallel),
    )


def _rule(wish: ResponseFormat | None) -> str | None:
    try:
        return format_rule(wish)
    except InvalidSchema as error:
        raise invalid_schema(_FORMAT, str(error)) from error


async def _style(service: EngineService) -> ToolFormat:
    support = await service.tools.support()
    if not support.tools:
        raise unsupported("tools", "the chat template of this model does not render tools.")
    if support.format is None:
        raise unsupported(
            "tools",
            "the chat template of this model renders tools but no calls of them, "
            "so that a call could not be told from text.",
        )
    return support.format


async def _compile(
    service: EngineService, body: ChatRequest, grammar: str, where: str
) -> Constraint:
    if not service.grammars.available:
        raise unsupported(where, "the tokenizer of this model cannot be held to a grammar.")
    for name in ("ignore_eos", "min_tokens"):
        if getattr(body, name):
            raise bad_value(f"{name} cannot be set where a grammar says when to end.", name)
    try:
        return await service.grammars.compile(grammar)
    except InvalidSchema as error:
        raise invalid_schema(where, str(error)) from error
    except Overloaded as error:
        raise overloaded() from error


async def _arguments(service: EngineService, index: int, function: Function) -> str:
    """The grammar of a function's arguments; what is not `strict` need not be enforceable."""
    where = f"tools[{index}].function.parameters"
    parameters = (
        {"additionalProperties": False} if function.parameters is None else function.parameters
    )
    if parameters.get("type", "object") != "object":
        raise bad_value("The parameters of a function must be of type 'object'.", where)
    try:
        rule = json_grammar({"type": "object", **parameters})
        await service.grammars.compile(f"start: {rule}")
    except InvalidSchema as error:
        if function.strict:
            raise invalid_schema(where, str(error), code="invalid_function_parameters") from error
        return json_grammar({"type": "object"})
    return rule
