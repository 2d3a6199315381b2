"""What the wheel's server needs of `sglang.utils`, the rest of which draws in notebooks."""

import json


def convert_json_schema_to_str(schema: object) -> str:
    """The schema as text."""
    return schema if isinstance(schema, str) else json.dumps(schema)
