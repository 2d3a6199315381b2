"""`tools` and `tool_choice` of a request."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from windlass.inference_api.errors import bad_value
from windlass.inference_api.formats import Name

MAX_TOOLS = 128


class Function(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A function that may be called; without `parameters` it takes none."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def told(self) -> dict[str, Any]:
        """Returns the tool as templates and training show it to the model: without `strict`."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        fields.pop("strict", None)
        return {"type": "function", "function": fields}


class Tool(Struct, kw_only=True, forbid_unknown_fields=True):
    """A tool; there are no others than functions."""

    type: Literal["function"]
    function: Function


class ChosenName(Struct, forbid_unknown_fields=True):
    """A function by its name."""

    name: str


class NamedChoice(Struct, tag_field="type", tag="function", forbid_unknown_fields=True):
    """The one function that must be called."""

    function: ChosenName


class AllowedTool(Struct, forbid_unknown_fields=True):
    """One of several that may be called."""

    type: Literal["function"]
    function: ChosenName


class Allowed(Struct, forbid_unknown_fields=True):
    """`mode` is what `tool_choice` would say if there were no other tools."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedTool], Meta(min_length=1)]


class AllowedTools(Struct, tag_field="type", tag="allowed_tools", forbid_unknown_fields=True):
    """Some of the tools."""

    allowed_tools: Allowed


ToolChoice = str | NamedChoice | AllowedTools


class Wanted(Struct, frozen=True):
    """The functions that may be called, and whether one must be."""

    functions: tuple[tuple[int, Function], ...] = ()
    """Each with its place in `tools`."""
    forced: bool = False


def wanted(tools: list[Tool] | None, choice: ToolChoice | None) -> Wanted:
    """The tool choice of a request; raises ApiError that names the parameter."""
    if not tools:
        if choice is not None and choice != "none":
            raise bad_value("tool_choice is only allowed when tools are specified.", "tool_choice")
        return Wanted()
    functions = _functions(tools)
    match choice:
        case "none":
            return Wanted()
        case None | "auto" | "required":
            return Wanted(functions, choice == "required")
        case NamedChoice(function=chosen):
            return Wanted(_chosen(functions, [chosen.name]), True)
        case AllowedTools(allowed_tools=allowed):
            some = _chosen(functions, [one.function.name for one in allowed.tools])
            return Wanted(some, allowed.mode == "required")
    raise bad_value(
        "tool_choice must be 'none', 'auto', 'required', a function or allowed_tools.",
        "tool_choice",
    )


def _functions(tools: list[Tool]) -> tuple[tuple[int, Function], ...]:
    if len(tools) > MAX_TOOLS:
        raise bad_value(f"There may be at most {MAX_TOOLS} tools.", "tools")
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.function.name in names:
            where = f"tools[{index}].function.name"
            raise bad_value(f"Two tools are called '{tool.function.name}'.", where)
        names.add(tool.function.name)
    return tuple((index, tool.function) for index, tool in enumerate(tools))


def _chosen(
    functions: tuple[tuple[int, Function], ...], names: list[str]
) -> tuple[tuple[int, Function], ...]:
    known = {function.name for _, function in functions}
    for name in names:
        if name not in known:
            raise bad_value(f"tool_choice names '{name}', which is not in tools.", "tool_choice")
    return tuple(one for one in functions if one[1].name in names)
