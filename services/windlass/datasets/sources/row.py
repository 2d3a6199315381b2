"""One row of a source, from which fields are taken by their usual spellings."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.datasets.errors import DatasetError, Reason


class Row:
    """Fields of row `number` (1-based), of which it is known which were not taken.

    A field that is null, or empty in a table, is absent.
    """

    def __init__(self, fields: Mapping[str, Any], number: int) -> None:
        self.number = number
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._taken: set[str] = set()

    @property
    def left(self) -> set[str]:
        """Names of the fields that nobody took."""
        return self._fields.keys() - self._taken

    def take(self, names: Sequence[str]) -> tuple[str, Any] | None:
        """Takes the first field there is of some spellings, with its name."""
        for name in names:
            if name in self._fields and name not in self._taken:
                self._taken.add(name)
                return name, self._fields[name]
        return None

    def require(self, names: Sequence[str]) -> tuple[str, Any]:
        """Takes a field as `take` does; raises DatasetError when there is none."""
        if (found := self.take(names)) is None:
            raise self.misfit(names[0], "is missing")
        return found

    def text(self, names: Sequence[str]) -> str:
        """Takes a text; raises DatasetError for none, an empty one, or another type."""
        name, value = self.require(names)
        return self.as_text(name, value)

    def optional_text(self, names: Sequence[str]) -> str:
        """Takes a text, empty when there is none; raises DatasetError for another type."""
        found = self.take(names)
        if found is None or found[1] == "":
            return ""
        return self.as_text(*found)

    def as_text(self, name: str, value: object) -> str:
        """Returns the value of a field as text that says something; raises DatasetError."""
        if isinstance(value, bool | int | float):
            # Answers in a table are often plain numbers.
            return json.dumps(value)
        if not isinstance(value, str):
            raise self.misfit(name, f"must be text, not {kind_of(value)}")
        if not value.strip():
            raise self.misfit(name, "is empty")
        return value

    def misfit(
        self, field: str, what: str, *, reason: Reason = Reason.INVALID_EXAMPLE
    ) -> DatasetError:
        """Returns the error of a field of this row."""
        return DatasetError(f"{field}: {what}.", reason=reason, line=self.number, param=field)


def kind_of(value: object) -> str:
    """Returns the word for the type of a JSON value."""
    kinds = ((str, "text"), (bool, "true or false"), (int | float, "a number"))
    for kind, word in kinds:
        if isinstance(value, kind):
            return word
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list) else type(value).__name__
