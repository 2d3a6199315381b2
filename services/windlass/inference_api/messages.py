"""Messages of a conversation, as a chat template reads them."""

import json
from typing import Any

from windlass.inference_api.errors import bad_value, unknown_parameter, unsupported
from windlass.inference_api.images.parts import KIND, MAX_IMAGES, check_image
from windlass.inference_api.parameters import MESSAGES_REFUSED, MESSAGES_WITHOUT_EFFECT

ROLES = ("system", "developer", "user", "assistant", "tool")
# What a template reads as it is; one that does not know it leaves it out.
_PASSED = ("name", "tool_call_id", "reasoning_content", "reasoning")
_USUAL = frozenset({"role", "content"})
# In the place of an image.
_NOTHING = {"type": "text", "text": ""}
_READ = frozenset({"role", "content", "refusal", "tool_calls", *_PASSED, *MESSAGES_WITHOUT_EFFECT})


def conversation(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages as a chat template expects them; raises ApiError that names the field."""
    if not messages:
        raise bad_value("messages must not be empty", "messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def check_conversation(messages: list[dict[str, Any]]) -> None:
    """Refuses what `conversation` does but images of users; raises ApiError that names the field.

    What fields parts may have beyond those of images, `check_parts` decides.
    """
    texts, images = [], 0
    for index, message in enumerate(messages):
        content = message.get("content")
        if not isinstance(content, list):
            texts.append(message)
            continue
        where, role = f"messages[{index}].content", str(message.get("role"))
        for place, part in enumerate(content):
            if _is_image(part):
                check_image(part, f"{where}[{place}]", role)
                images += 1
        # The places of what is left do not change.
        texts.append({**message, "content": [_NOTHING if _is_image(x) else x for x in content]})
    conversation(texts)
    if images > MAX_IMAGES:
        raise bad_value(f"messages have at most {MAX_IMAGES} images", "messages")


def _is_image(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == KIND


def check_parts(messages: list[dict[str, Any]]) -> None:
    """Refuses fields of parts that `conversation` leaves out; raises ApiError by the name.

    An engine may read them: vLLM takes a text part with `uuid` and `image_url` for an image, and
    any `uuid` for the name of an image that it has, whoever sent that.
    """
    for index, message in enumerate(messages):
        content = message.get("content")
        for place, part in enumerate(content if isinstance(content, list) else ()):
            for key in sorted(part.keys() - {"type", part.get("type")}):
                raise unknown_parameter(f"messages[{index}].content[{place}].{key[:64]}")


def _message(message: dict[str, Any], where: str) -> dict[str, Any]:
    role = message.get("role")
    if role not in ROLES:
        raise bad_value(f"role must be one of {', '.join(ROLES)}", f"{where}.role")
    if message.get("content") is None and role != "assistant":
        raise bad_value(f"a {role} message needs content", f"{where}.content")
    # An assistant's refusal is what it said.
    said = "content" if message.get("content") is not None else "refusal"
    plain: dict[str, Any] = {
        "role": "system" if role == "developer" else role,
        "content": _text(message.get(said), f"{where}.{said}"),
    }
    if message.keys() <= _USUAL:
        return plain
    for key, value in message.items():
        _check_key(key, value, where)
    if calls := message.get("tool_calls"):
        plain["tool_calls"] = _tool_calls(calls, f"{where}.tool_calls")
    plain |= _texts(message, _PASSED, where)
    return plain


def _texts(fields: dict[str, Any], names: tuple[str, ...], where: str) -> dict[str, str]:
    """Returns those of the fields that are there; raises ApiError for one that is no text."""
    found = {name: fields[name] for name in names if fields.get(name) is not None}
    for name, value in found.items():
        if not isinstance(value, str):
            raise bad_value(f"{name} must be a string", f"{where}.{name}")
    return found


def _check_key(key: str, value: Any, where: str) -> None:
    """Raises ApiError for what would be left out; clients send back answers with empty fields."""
    if key in _READ or value in (None, False, "", [], {}):
        return
    if why := MESSAGES_REFUSED.get(key):
        raise unsupported(f"{where}.{key}", why)
    raise unknown_parameter(f"{where}.{key[:64]}")


def _text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise bad_value("content must be a string or a list of parts", where)
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "refusal"):
            raise unsupported(f"{where}[{index}].type", "only parts of type 'text' are supported")
        if not isinstance(part.get(kind), str):
            raise bad_value(f"{kind} must be a string", f"{where}[{index}].{kind}")
        texts.append(part[kind])
    return "".join(texts)


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """Templates want the arguments as an object, OpenAI sends them as JSON text."""
    if not isinstance(calls, list):
        raise bad_value("tool_calls must be a list", where)
    return [_tool_call(call, f"{where}[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise bad_value("a call needs function.name", f"{where}.function.name")
    _texts(call, ("id", "type"), where)
    arguments = function.get("arguments")
    try:
        if isinstance(arguments, str):
            arguments = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise bad_value("arguments must be JSON", f"{where}.function.arguments") from error
    if not isinstance(arguments, dict):
        raise bad_value("arguments must be a JSON object", f"{where}.function.arguments")
    return {**call, "function": {**function, "arguments": arguments}}
