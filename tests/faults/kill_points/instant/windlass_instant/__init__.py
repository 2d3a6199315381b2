"""A backend whose trainer trains nothing, in milliseconds, for tests of all that surrounds one.

It is installed by naming its folder in PYTHONPATH. Everything but the trainer is the product's:
the runner, its files and its protocol.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from windlass.backends import LLMBackend, RenderContext, Sizing, register_backend

TRAINER = Path(__file__).with_name("train.py")


@register_backend("instant")
@dataclass
class InstantConfig(LLMBackend):
    """Makes `epochs` checkpoints, `steps` steps apart."""

    framework: ClassVar[str] = "instant"
    schema_version: ClassVar[int] = 1

    epochs: int
    steps: int = 2

    @classmethod
    def from_openai(
        cls,
        *,
        method: str,
        hyperparameters: Mapping[str, Any],
        seed: int,
        sizing: Sizing,
        extra: Mapping[str, Any],
        grader: Mapping[str, Any] | None = None,
    ) -> Self:
        return cls(epochs=int(hyperparameters["n_epochs"]))

    @classmethod
    def from_document(cls, document: Mapping[str, Any], schema_version: int) -> Self:
        return cls(**document)

    def to_document(self) -> dict[str, Any]:
        return asdict(self)

    def to_command(self, context: RenderContext | None = None) -> tuple[str, ...]:
        # The standard library alone starts in 15 ms.
        return (context.python if context else "python", "-I", "-S", str(TRAINER))

    def to_args(self, context: RenderContext | None = None) -> list[str]:
        place = context or RenderContext.of_pod()
        resumed = [f"--resume={place.resume_from}"] if place.resume_from else []
        return [
            f"--output={place.output}",
            f"--metrics={place.metrics}",
            f"--epochs={self.epochs}",
            f"--steps={self.steps}",
            *resumed,
        ]
