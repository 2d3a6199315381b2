"""JSON Schemas of what `plain` makes of the contract's messages."""

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from windlass.gateway.plain import enum_name

Schema = dict[str, Any]

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
}


def message(descriptor: Descriptor, kind: str = "", **more: Schema) -> Schema:
    """The schema of `plain(message, kind)` with more properties, or other ones, beside it."""
    fields = {field.name: _field(field) for field in descriptor.fields}
    head = {"object": {"const": kind}} if kind else {}
    return obj({**head, **fields, **more})


def obj(properties: dict[str, Schema], *, optional: tuple[str, ...] = ()) -> Schema:
    """An object that has all of these properties, but for the optional ones, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def nullable(schema: Schema) -> Schema:
    """The same or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def _field(field: FieldDescriptor) -> Schema:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return {
            "type": "object",
            "additionalProperties": _single(inner.fields_by_name["value"]),
        }
    single = _single(field)
    if field.is_repeated:
        return {"type": "array", "items": single}
    if field.has_presence or field.name.endswith(("_id", "_at")):
        return nullable(single)
    return single


def _single(field: FieldDescriptor) -> Schema:
    if field.message_type is not None:
        return message(field.message_type)
    if field.enum_type is not None:
        names = [enum_name(field.enum_type, one.number) for one in field.enum_type.values]
        return {"type": "string", "enum": list(dict.fromkeys([*names, "unknown"]))}
    if field.cpp_type in _INTEGERS:
        return {"type": "integer"}
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return {"type": "boolean"}
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return {"type": "string"}
    return {"type": "number"}
