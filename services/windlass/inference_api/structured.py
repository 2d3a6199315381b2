"""Rules that an answer is held to beside `response_format`, in vLLM's words, and their bounds."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from windlass.inference_api.errors import bad_value
from windlass.inference_api.formats import JsonSchemaFormat, ResponseFormat, TextFormat
from windlass.inference_api.requests import Input
from windlass.inference_api.schemas import read_schema

# Of a grammar, a schema, a tool or a template's values.
DOCUMENT_BYTES = 64 * 1024


class StructuredOutputs(Struct, kw_only=True, forbid_unknown_fields=True):
    """Rules that an answer is held to, of which there is exactly one."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: Annotated[list[str], Meta(min_length=1)] | None = None
    grammar: str | None = None
    json_object: bool | None = None


def check_rules(held: StructuredOutputs | None, form: ResponseFormat | None) -> None:
    """Refuses several rules, none, or more than their bound; raises ApiError."""
    bounded(form, "response_format")
    if held is None:
        return
    rules = [held.json, held.regex, held.choice, held.grammar, held.json_object]
    if sum(rule is not None for rule in rules) != 1 or held.json_object is False:
        raise bad_value(
            "structured_outputs needs exactly one of json, regex, choice, grammar and json_object",
            "structured_outputs",
        )
    if form not in (None, TextFormat()):
        raise bad_value(
            "structured_outputs and response_format cannot both be set.", "structured_outputs"
        )
    bounded(held, "structured_outputs")


def schemas_of(
    form: ResponseFormat | None, held: StructuredOutputs | None
) -> Iterator[tuple[str, object]]:
    """Yields the schemas of a request's rules, each with its place."""
    if isinstance(form, JsonSchemaFormat):
        yield "response_format", form.json_schema.schema
    if held is not None and held.json is not None:
        yield "structured_outputs.json", read_schema(held.json, "structured_outputs.json")


def bounded(value: object, where: str) -> None:
    """Refuses a document of more than DOCUMENT_BYTES; raises ApiError."""
    if value is not None and len(msgspec.json.encode(value)) > DOCUMENT_BYTES:
        raise bad_value(f"{where} has more than {DOCUMENT_BYTES} bytes", where)


def count(given: Input, where: str, *, most: int) -> int:
    """The number of inputs; raises ApiError for none, too many, a mixture or a negative id."""
    if isinstance(given, str):
        return 1
    kinds = {type(one) for one in given}
    if len(kinds) != 1:
        raise bad_value(f"{where} must be texts or token ids, of one kind, and not empty", where)
    lists = [given] if kinds == {int} else given
    number = len(lists)
    if number > most:
        raise bad_value(f"{where} holds at most {most} inputs", where)
    for ids in lists:
        if isinstance(ids, list) and not all(isinstance(one, int) and one >= 0 for one in ids):
            raise bad_value("token ids are not negative", where)
    return number
