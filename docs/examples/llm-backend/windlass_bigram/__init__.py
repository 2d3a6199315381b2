"""A backend for the smallest language model: which word follows which."""

from dataclasses import dataclass
from typing import ClassVar

from windlass.backends import InvalidConfig, LLMBackend, RenderContext, register_backend


@register_backend("bigram")
@dataclass
class BigramConfig(LLMBackend):
    """Counts pairs of words, and keeps those that are seen `min_count` times."""

    framework: ClassVar[str] = "bigram"
    schema_version: ClassVar[int] = 1

    min_count: int = 1
    num_nodes: int | None = None

    def validate(self) -> None:
        """Raises InvalidConfig for what the trainer cannot do."""
        if self.min_count < 1:
            raise InvalidConfig("min_count", "must be 1 or more")
        if (self.num_nodes or 1) > 1:
            raise InvalidConfig("num_nodes", "words are counted on one node")

    def to_command(self, context: RenderContext | None = None) -> tuple[str, ...]:
        """Returns the trainer of this package, by the interpreter of the image or of the job."""
        python = context.python if context and context.managed else "python"
        return (python, "-m", "windlass_bigram.train")

    def to_args(self, context: RenderContext | None = None) -> list[str]:
        """Returns the trainer's flags."""
        place = context or RenderContext.of_pod()
        return [
            f"--dataset={place.dataset}",
            f"--output={place.output}",
            f"--min-count={self.min_count}",
        ]
