"""The model card: what a model was made of, beside its weights as README.md."""

import importlib.metadata
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

NAME = "README.md"
# What trackers take of a parameter.
_PARAM_LENGTH = 500
_PACKAGES = ("windlass", "torch", "transformers", "trl", "peft", "datasets", "accelerate")
# Ours have no secrets; a backend of another distribution may think otherwise.
_SECRET = re.compile(
    r"(^|_)(secret|password|credentials?|(api|access|private)_?key|(access|auth|hub|hf)_token)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Data:
    """A file that was trained or validated on, by its digest."""

    role: str
    examples: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Model card fields shared by all models of one attempt."""

    job_id: str
    attempt: int
    base_model: str
    backend: str
    config: Mapping[str, Any]
    data: Sequence[Data]

    def params(self) -> dict[str, str]:
        """The parameters of a run as texts by dotted names: what the model is made of."""
        values: dict[str, Any] = {"base_model": self.base_model, "backend": self.backend}
        for one in self.data:
            values |= {f"{one.role}_examples": one.examples, f"{one.role}_sha256": one.sha256}
        values |= _redacted(dict(self.config))
        return {name: text[:_PARAM_LENGTH] for name, text in _flat(values) if text}

    def write(
        self, folder: Path, *, step: int, is_adapter: bool, metrics: Mapping[str, float]
    ) -> None:
        """Puts the card of a model at a step into its folder, in place of any other."""
        library = "peft" if is_adapter else "transformers"
        head = {"base_model": self.base_model, "library_name": library}
        kind = "A LoRA adapter on" if is_adapter else "Fine-tuned from"
        paragraphs = [
            # JSON is YAML.
            "\n".join(
                ["---", *(f"{key}: {_json(value)}" for key, value in head.items()),
                 f"tags: {_json(['windlass', self.backend])}", "---"]
            ),
            f"# {kind} {self.base_model}",
            f"Made by Windlass: job `{self.job_id}`, attempt {self.attempt}, step {step}.",
            "## Data",
            _table(
                ("file", "examples", "SHA-256"),
                ((one.role, one.examples, f"`{one.sha256}`") for one in self.data),
            ),
            "## Metrics",
            _table(
                ("metric", f"at step {step}"),
                ((f"`{name}`", f"{value:.6g}") for name, value in sorted(metrics.items())),
            ),
            "## Configuration",
            _fenced(_redacted(dict(self.config))),
            "## Versions",
            _table(("package", "version"), _versions()),
        ]  # fmt: skip
        (folder / NAME).write_text("\n\n".join(paragraphs) + "\n")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _fenced(value: Any) -> str:
    text = msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode()
    # A fence that the text cannot end: JSON has no line of tildes.
    return f"~~~json\n{text}\n~~~"


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "(left out)" if _SECRET.search(str(key)) and each else _redacted(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_redacted(each) for each in value]
    return value


def _flat(values: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{within}{name}.")
        elif value is not None:
            yield f"{within}{name}", value if isinstance(value, str) else _json(value)


def _table(head: Sequence[str], rows: Iterator[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    for name in _PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
