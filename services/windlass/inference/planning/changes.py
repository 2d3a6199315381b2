"""Changes of rows that a round of planning decides."""

from dataclasses import dataclass, field, replace

from windlass.inference.domain import DELETED, Engine, Serving, WantedVersion


@dataclass
class EngineChanges:
    """Changes of rows: each update names the engine as it was and as it shall be."""

    updates: list[tuple[Engine, Engine]] = field(default_factory=list)
    creates: list[Engine] = field(default_factory=list)
    dropped: list[WantedVersion] = field(default_factory=list)
    # Servings of models that are gone.
    ended: list[Serving] = field(default_factory=list)
    errors: list[tuple[WantedVersion, str]] = field(default_factory=list)


def deleted(engine: Engine) -> Engine:
    """The engine as it shall be no more."""
    return replace(engine, desired=DELETED, generation=engine.generation + 1)
