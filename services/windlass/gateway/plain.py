"""Messages of the contract as plain JSON, for resources that OpenAI has no word for."""

from typing import Any

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message

Json = dict[str, Any]


def plain(message: Message, kind: str = "") -> Json:
    """Every field by its name; enums in lower case; null for what is not set, an id or a time."""
    fields = {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}
    return {"object": kind, **fields} if kind else fields


def _value(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.is_repeated:
        return [_single(field, item) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    if not value and field.name.endswith(("_id", "_at")):
        return None
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        return enum_name(field.enum_type, value)
    return value.hex() if isinstance(value, bytes) else value


def enum_name(descriptor: EnumDescriptor, number: int) -> str:
    """`ROLE_PROJECT_OWNER` as `project_owner`; an unknown number as `unknown`."""
    zero = descriptor.values_by_number[0].name
    prefix = zero.removesuffix("UNSPECIFIED")
    found = descriptor.values_by_number.get(number)
    return found.name.removeprefix(prefix).lower() if found else "unknown"
