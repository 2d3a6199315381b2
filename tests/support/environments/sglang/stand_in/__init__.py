"""The package `sglang` of tests: SGLang's wheel, but for its front end, which wants a notebook.

`launch_server` here takes the place of SGLang's. It generates words instead of running a model,
and has the wheel's own parser of flags, checks of keys, types of requests and answers, and chunks.
It imports the wheel, beside which it is copied (`env`).
"""

import json
import sys
from pathlib import Path
from types import ModuleType

__path__.append(str(Path(__file__).parents[1] / "sglang_wheel"))


def _as_text(schema: object) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


# All that the server needs of a module the rest of which draws in notebooks.
_utils = ModuleType("sglang.utils")
_utils.convert_json_schema_to_str = _as_text
sys.modules["sglang.utils"] = _utils
