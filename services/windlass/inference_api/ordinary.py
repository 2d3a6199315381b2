"""Chats that their types alone decide: most of all requests, checked at a tenth of the cost."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from windlass.inference_api.requests import ChatRequest

# Of these no check looks further than their types.
_FIELDS = frozenset(
    {
        "model", "n", "temperature", "top_p", "presence_penalty", "frequency_penalty", "stream",
        "max_tokens", "max_completion_tokens", "user", "ignore_eos", "min_tokens",
    }
)  # fmt: skip


class _Message(Struct, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str


_Chat = msgspec.defstruct(
    "OrdinaryChat",
    [
        ("messages", Annotated[list[_Message], Meta(min_length=1)]),
        *((one.name, one.type, one.default) for one in msgspec.structs.fields(ChatRequest)
          if one.name in _FIELDS),
    ],
    kw_only=True,
    forbid_unknown_fields=True,
)  # fmt: skip
_decode = msgspec.json.Decoder(_Chat).decode


def is_ordinary(body: bytes) -> bool:
    """Returns True for a chat of texts and numbers in their bounds, which every check passes.

    False says nothing: `requests.check` and its like decide.
    """
    try:
        chat: Any = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return None in (chat.max_tokens, chat.max_completion_tokens)
