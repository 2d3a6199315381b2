"""Registry of the installed backends: built-in ones and those of entry points."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar, overload

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
            raise _duplicate(cls.name, other, cls)
        return cls

    def register_as(self, name: str, cls: type[BackendT]) -> type[BackendT]:
        """Adds a backend under a name given here; raises BackendError, for another of its own too.

        A class that has no name of its own gets this one; that of a parent is none.
        """
        own = vars(cls).get("name", name)
        if own != name:
            raise BackendError(
                f"Backend {_path(cls)} is named '{own}', and registered as '{name}'."
            )
        if (other := self._classes.get(name, cls)) is not cls:
            raise _duplicate(name, other, cls)
        cls.name = name
        return self.register(cls)

    def get(self, name: str) -> type[LLMBackend]:
        """Returns a backend, loading no other; raises BackendError when there is none."""
        # Reading every distribution's entry points takes milliseconds: once per name.
        if name not in self._loaded:
            for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
                self._load(entry)
        if name not in self._classes:
            installed = ", ".join(self.names()) or "none"
            raise BackendError(f"No backend is named '{name}'. Installed: {installed}.")
        self._loaded.add(name)
        return self._classes[name]

    def names(self) -> list[str]:
        """Returns the names of all backends, loading none."""
        return sorted({*self._classes, *entry_points(group=ENTRY_POINT_GROUP).names})

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


@overload
def register_backend(given: str) -> Callable[[type[BackendT]], type[BackendT]]: ...
@overload
def register_backend(given: type[BackendT]) -> type[BackendT]: ...
def register_backend(
    given: str | type[BackendT],
) -> Callable[[type[BackendT]], type[BackendT]] | type[BackendT]:
    """Makes a backend available; raises BackendError when its name is taken.

    `@register_backend` takes the name that the class declares, `@register_backend("name")` gives
    it one.
    """
    if isinstance(given, str):
        return lambda cls: _installed.register_as(given, cls)
    return _installed.register(given)


def get_backend(name: str) -> type[LLMBackend]:
    """Returns the backend of that name, loading its distribution; raises BackendError."""
    return _installed.get(name)


def get_registered_backends() -> dict[str, type[LLMBackend]]:
    """Returns every backend by name, loading all distributions; raises BackendError."""
    return _installed.all()


def backend_names() -> list[str]:
    """Returns the names of all backends that are installed, sound or not."""
    return _installed.names()


def _duplicate(name: str, one: type, other: type) -> BackendError:
    return BackendError(f"Two backends are named '{name}': {_path(one)} and {_path(other)}.")


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
