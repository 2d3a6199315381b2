"""Which backends are installed: ours, and any distribution's that offers an entry point."""

from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from windlass.backends.backend import LLMBackend

ENTRY_POINT_GROUP = "windlass.llm_backends"

BackendT = TypeVar("BackendT", bound=LLMBackend)


class BackendError(Exception):
    """A backend that is not installed, or that cannot be used as installed."""


class Registry:
    """Backends by name; one name belongs to one class."""

    def __init__(self) -> None:
        self._classes: dict[str, type[LLMBackend]] = {}
        self._loaded: set[str] = set()

    def register(self, cls: type[BackendT]) -> type[BackendT]:
        """Adds a backend; raises BackendError when another class has its name."""
        for attribute in ("name", "framework", "schema_version"):
            if not hasattr(cls, attribute):
                raise BackendError(f"Backend {_path(cls)} does not declare `{attribute}`.")
        other = self._classes.setdefault(cls.name, cls)
        if other is not cls:
            raise BackendError(
                f"Two backends are named '{cls.name}': {_path(other)} and {_path(cls)}."
            )
        return cls

    def get(self, name: str) -> type[LLMBackend]:
        """Returns a backend, loading no other; raises BackendError when there is none."""
        # Reading every distribution's entry points takes milliseconds: once per name.
        if name not in self._loaded:
            for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
                self._load(entry)
        if name not in self._classes:
            installed = sorted({*self._classes, *entry_points(group=ENTRY_POINT_GROUP).names})
            raise BackendError(
                f"No backend is named '{name}'. Installed: {', '.join(installed) or 'none'}."
            )
        self._loaded.add(name)
        return self._classes[name]

    def all(self) -> dict[str, type[LLMBackend]]:
        """Returns every backend by name; raises BackendError when one cannot be loaded."""
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            self._load(entry)
        return dict(self._classes)

    def _load(self, entry: EntryPoint) -> None:
        source = entry.dist.name if entry.dist else "an unnamed distribution"
        try:
            cls = entry.load()
        except Exception as error:
            raise BackendError(
                f"Backend '{entry.name}' of {source} could not be loaded: {error}"
            ) from error
        if not (isinstance(cls, type) and issubclass(cls, LLMBackend)):
            raise BackendError(f"Entry point '{entry.name}' of {source} is not an LLMBackend.")
        self.register(cls)
        if cls.name != entry.name:
            raise BackendError(
                f"Entry point '{entry.name}' of {source} holds the backend '{cls.name}'."
            )


_installed = Registry()


def register_backend(cls: type[BackendT]) -> type[BackendT]:
    """Makes a backend available under its `name`; raises BackendError when that is taken."""
    return _installed.register(cls)


def get_backend(name: str) -> type[LLMBackend]:
    """Returns the backend of that name, loading its distribution; raises BackendError."""
    return _installed.get(name)


def get_registered_backends() -> dict[str, type[LLMBackend]]:
    """Returns every backend by name, loading all distributions; raises BackendError."""
    return _installed.all()


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
