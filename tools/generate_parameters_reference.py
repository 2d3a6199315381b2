"""Writes docs/reference/parameters.md from the tables that the engine refuses by."""

from pathlib import Path

from windlass.inference_api.parameters import (
    MESSAGES_REFUSED,
    MESSAGES_WITHOUT_EFFECT,
    REFUSED,
    WITHOUT_EFFECT,
)

TARGET = Path(__file__).parents[1] / "docs" / "reference" / "parameters.md"
HEAD = """# Parameters of inference without effect

Made by `tools/generate_parameters_reference.py`; a test keeps it true.

Chat completions, completions and embeddings take OpenAI's parameters. One that is not known is
refused with 400 and `unknown_parameter`, by name, and so is a field of a message that is not
empty. A body whose values do not fit is refused before an engine is started for it, and so are
`max_tokens` and `max_completion_tokens` together.
Other engines than the built-in one check bodies themselves.

"""


def reference() -> str:
    """The whole page."""
    parts = [
        HEAD,
        "## Accepted without effect\n\n",
        _table(WITHOUT_EFFECT | _of_messages(MESSAGES_WITHOUT_EFFECT)),
        "\n## Refused with `unsupported_parameter` when set\n\n",
        _table(REFUSED | _of_messages(MESSAGES_REFUSED)),
    ]
    return "".join(parts)


def _of_messages(rows: dict[str, str]) -> dict[str, str]:
    return {f"messages[].{name}": why for name, why in rows.items()}


def _table(rows: dict[str, str]) -> str:
    lines = ["| parameter | why |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in rows.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(reference())
