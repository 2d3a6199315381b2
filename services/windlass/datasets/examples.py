"""The kinds of example: OpenAI's three, and TRL's unpaired preference.

Source: OpenAI's guides to supervised, direct preference and reinforcement fine-tuning, and TRL's
dataset formats (`prompt`, `completion`, `label`, as messages). Fields that the chat API adds to an
answer (`refusal`, `annotations`, `audio`) are accepted on assistant messages, so that a recorded
answer can be pasted in; any other unknown field is refused, because a misspelled `weight` would
otherwise change the training in silence.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

NonEmpty = Annotated[str, Meta(min_length=1)]


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    pass


class TextPart(_Strict, frozen=True, tag_field="type", tag="text"):
    """A piece of a message's text."""

    text: str


Content = str | Annotated[list[TextPart], Meta(min_length=1)]


class FunctionCall(_Strict, frozen=True):
    """A call of a function; `arguments` is a JSON object as text."""

    name: NonEmpty
    arguments: str


class ToolCall(_Strict, frozen=True):
    """A call of a tool by the assistant."""

    id: NonEmpty
    function: FunctionCall
    type: Literal["function"] = "function"


class FunctionDefinition(_Strict, frozen=True):
    """A function that the assistant may call; `parameters` is a JSON Schema."""

    name: NonEmpty
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolDefinition(_Strict, frozen=True):
    """A tool that the assistant may call."""

    type: Literal["function"]
    function: FunctionDefinition


class System(_Strict, frozen=True, tag_field="role", tag="system"):
    """Instructions."""

    content: Content
    name: str | None = None


class Developer(_Strict, frozen=True, tag_field="role", tag="developer"):
    """Instructions, under their newer name."""

    content: Content
    name: str | None = None


class User(_Strict, frozen=True, tag_field="role", tag="user"):
    """Message of the user."""

    content: Content
    name: str | None = None


class Assistant(_Strict, frozen=True, tag_field="role", tag="assistant"):
    """Message of the assistant; weight 0 excludes it from the loss."""

    content: Content | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: FunctionCall | None = None
    weight: Literal[0, 1] | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None


class ToolResult(_Strict, frozen=True, tag_field="role", tag="tool"):
    """Result of a tool call."""

    content: Content
    tool_call_id: NonEmpty
    name: str | None = None


class FunctionResult(_Strict, frozen=True, tag_field="role", tag="function"):
    """Result of a function call (the older form of `tool`)."""

    content: str | None
    name: NonEmpty


Message = System | Developer | User | Assistant | ToolResult | FunctionResult
Messages = Annotated[list[Message], Meta(min_length=1)]
Answer = Annotated[list[Assistant], Meta(min_length=1, max_length=1)]
ROLES = ("system", "developer", "user", "assistant", "tool")


class ChatExample(_Strict, frozen=True):
    """A conversation whose assistant messages are learned."""

    messages: Messages
    tools: list[ToolDefinition] | None = None
    functions: list[FunctionDefinition] | None = None
    parallel_tool_calls: bool | None = None


class Prompt(_Strict, frozen=True):
    """A conversation up to the answer."""

    messages: Messages
    tools: list[ToolDefinition] | None = None
    parallel_tool_calls: bool | None = None


class PreferenceExample(_Strict, frozen=True):
    """Two answers to one conversation, the better and the worse."""

    input: Prompt
    preferred_output: Answer
    non_preferred_output: Answer


class UnpairedExample(_Strict, frozen=True):
    """One answer to a conversation; `label` says whether it is a good one."""

    prompt: Messages
    completion: Answer
    label: bool
    tools: list[ToolDefinition] | None = None


class ReinforcementPrompt(Struct, frozen=True, gc=False):
    """The part of a reinforcement example that the model sees; other fields are the grader's."""

    messages: Messages
    tools: list[ToolDefinition] | None = None


@dataclass(frozen=True)
class ReinforcementExample:
    """A conversation that the model is to answer; a grader sees every field of it as `item`."""

    asked: ReinforcementPrompt
    item: dict[str, Any]


Example = ChatExample | PreferenceExample | UnpairedExample | ReinforcementExample
