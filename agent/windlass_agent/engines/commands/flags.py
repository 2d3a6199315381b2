"""Arguments of an engine as flags of its command."""

from collections.abc import Iterator, Mapping

from windlass.engine_arguments import EngineArguments, chosen


def flags_of(arguments: EngineArguments, names: Mapping[str, str]) -> Iterator[str]:
    """Yields a flag for each argument that is set, by the name that the engine has for it.

    A switch is `--name` or `--no-name`; all else is `--name=value`, so that no value is ever taken
    for a flag. Raises KeyError for an argument that the engine does not take.
    """
    for argument, value in chosen(arguments).items():
        name = names[argument]
        if isinstance(value, bool):
            yield f"--{name}" if value else f"--no-{name}"
        else:
            yield f"--{name}={value}"
