"""Writes docs/reference/parameters.md from the tables that bodies are refused by."""

from pathlib import Path

from windlass.inference_api.parameters import (
    MESSAGES_REFUSED,
    MESSAGES_WITHOUT_EFFECT,
    PARTS_WITHOUT_EFFECT,
    REFUSED,
    VLLM_REFUSED,
    WITHOUT_EFFECT,
)
from windlass.inference_api.schemas import COUNTED_PROPERTIES, DEPTH, LIST_LENGTH, MOST, WORK
from windlass.inference_api.sglang import SHARED, SHARED_IN_CHATS
from windlass.inference_api.structured import DOCUMENT_BYTES
from windlass.inference_api.vllm import CHAT, SAMPLING

TARGET = Path(__file__).parents[1] / "docs" / "reference" / "parameters.md"
HEAD = """# Parameters of inference

Made by `tools/generate_parameters_reference.py`; a test keeps it true.

Chat completions, completions and embeddings take OpenAI's parameters. One that is not known is
refused with 400 and `unknown_parameter`, by name, and so is a field of a message that is not
empty. A body whose values do not fit is refused before an engine is started for it, and so are
`max_tokens` and `max_completion_tokens` together.

"""


def _listed(names: tuple[str, ...]) -> str:
    *most, last = (f"`{name}`" for name in names)
    return f"{', '.join(most)} and {last}"


VLLM = f"""
## Engines of the kind `vllm`

They take OpenAI's parameters and those below; vLLM's others are refused with `unknown_parameter`,
`cache_salt` and `priority` among them, which the gateway writes itself. Of the parameters above,
they take {{taken}}.
In place of those that begin with `guided_` there is `structured_outputs`.
`reasoning_effort` has an effect. `tool_choice` knows no `allowed_tools`. Schemas, tools,
`chat_template_kwargs` and `structured_outputs` have at most {DOCUMENT_BYTES // 1024} KiB each,
and a part of a message has no other fields than its text, or than its
[image](../how-to/send-images.md). Embeddings take `truncate_prompt_tokens`.
A model of another kind of engine takes what the built-in engine takes.

An engine converts schemas while all its requests wait, so those of a request (`response_format`,
`tools`, `structured_outputs.json`) are bounded together: objects, keys and values of lists count
1 each, bounds of numbers and of items, formats and patterns more, and the sum is at most {WORK}.
Lists have at most {LIST_LENGTH} values, lengths and counts are at most {MOST}, objects and lists
nest {DEPTH} deep, `minProperties` and `maxProperties` are for at most {COUNTED_PROPERTIES}
properties, and there are no `patternProperties`.
`allowed_token_ids` goes with neither a schema nor tools. `prompt_logprobs` is refused, and so is
`echo` with `logprobs`.

"""

SGLANG = f"""
## Engines of the kind `sglang`

They take OpenAI's parameters and, with the same bounds, these of `vllm`:
{_listed((*SHARED, *SHARED_IN_CHATS))}.
`seed` is refused, since no seed decides what SGLang draws; so are `echo` with `logprobs`, and
`max_tokens` of 0.
"""


def reference() -> str:
    """The whole page."""
    parts = [
        HEAD,
        "## Accepted without effect\n\n",
        _table(WITHOUT_EFFECT | _of_messages(MESSAGES_WITHOUT_EFFECT | _of_parts())),
        "\n## Refused with `unsupported_parameter` when set\n\n",
        _table(REFUSED | _of_messages(MESSAGES_REFUSED)),
        VLLM.format(
            taken=" and ".join(f"`{name}`" for name in REFUSED if name not in VLLM_REFUSED)
        ),
        _table({name: words for name, (_, words) in SAMPLING.items()}, "what it does"),
        "\nIn chats alone:\n\n",
        _table({name: words for name, (_, words) in CHAT.items()}, "what it does"),
        SGLANG,
    ]
    return "".join(parts)


def _of_messages(rows: dict[str, str]) -> dict[str, str]:
    return {f"messages[].{name}": why for name, why in rows.items()}


def _of_parts() -> dict[str, str]:
    return {f"content[].{name}": why for name, why in PARTS_WITHOUT_EFFECT.items()}


def _table(rows: dict[str, str], about: str = "why") -> str:
    lines = [f"| parameter | {about} |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in rows.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(reference())
