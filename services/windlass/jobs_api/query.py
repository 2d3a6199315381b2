"""Parameters of the query that a job is created with: its dry run, and what that knows of files."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from windlass.core import misfits
from windlass.core.errors import InvalidArgument
from windlass.datasets.parsing import Format

Examples = Annotated[int, Meta(ge=1, le=2**40)]
T = TypeVar("T", bound=Struct)


class UnsentFiles(Struct, frozen=True, kw_only=True):
    """Facts of files that are not uploaded yet, None while unknown."""

    training_format: Format | None = None
    training_examples: Examples | None = None
    validation_format: Format | None = None
    evaluation_format: Format | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Returns what is known, by name."""
        found = ((name, getattr(self, name)) for name in UnsentFiles.__struct_fields__)
        return {name: value for name, value in found if value is not None}


class CreationQuery(UnsentFiles, frozen=True, kw_only=True):
    """The parameters; a dry run checks everything and creates nothing."""

    dry_run: bool = False

    def __post_init__(self) -> None:
        for name in () if self.dry_run else self.given:
            raise InvalidArgument(f"{name} is only allowed with dry_run.", param=name)


def typed(values: Mapping[str, Any], kind: type[T]) -> T:
    """The parameters by name, some of them still text; raises InvalidArgument."""
    try:
        return msgspec.convert(dict(values), kind, strict=False)
    except msgspec.ValidationError as error:
        param, wrong = misfits.place(error, at="", of=kind)
        raise InvalidArgument(
            f"Invalid value for '{param}': {misfits.words(wrong)}.", param=param
        ) from None
