"""Writes docs/reference/parameters.md from the tables that the engine refuses by."""

from pathlib import Path

from windlass.inference_api.parameters import REFUSED, WITHOUT_EFFECT

TARGET = Path(__file__).parents[1] / "docs" / "reference" / "parameters.md"
HEAD = """# Parameters of inference without effect

Made by `tools/generate_parameters_reference.py`; a test keeps it true.

Chat completions, completions and embeddings take OpenAI's parameters. One that is not known is
refused with 400 and `unknown_parameter`, by name. So is a body whose values do not fit, before an
engine is started for it. `max_tokens` and `max_completion_tokens` together are refused.
Other engines than the built-in one check bodies themselves.

"""


def reference() -> str:
    """The whole page."""
    parts = [
        HEAD,
        "## Accepted without effect\n\n",
        _table(WITHOUT_EFFECT),
        "\n## Refused with `unsupported_parameter` when set\n\n",
        _table(REFUSED),
    ]
    return "".join(parts)


def _table(rows: dict[str, str]) -> str:
    lines = ["| parameter | why |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in rows.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(reference())
