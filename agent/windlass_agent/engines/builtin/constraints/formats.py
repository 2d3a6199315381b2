"""The grammar of a `response_format`."""

from windlass.inference_api.formats import JsonObjectFormat, JsonSchemaFormat, ResponseFormat
from windlass_agent.engines.builtin.constraints.schemas import json_grammar


def format_rule(wanted: ResponseFormat | None) -> str | None:
    """A rule's body for an answer of this format, None for any text; raises InvalidSchema."""
    match wanted:
        case JsonObjectFormat():
            return json_grammar({"type": "object"})
        case JsonSchemaFormat(json_schema=asked):
            return json_grammar(asked.schema)
    return None
