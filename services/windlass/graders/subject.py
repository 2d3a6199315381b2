"""Subject of a grader: a model's answer, and the example that it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import msgspec

from windlass.graders.faults import Fault, Ungradable


@dataclass(frozen=True)
class Subject:
    """A sample's text, and the fields of its dataset item; the namespaces of a template."""

    sample: str
    item: Mapping[str, Any]

    @classmethod
    def of_json(cls, sample: str, item: bytes | str) -> Self:
        """The subject of an item's JSON."""
        return cls(sample, msgspec.json.decode(item))

    @cached_property
    def output_json(self) -> Any:
        """The sample as JSON; raises Ungradable when it is none."""
        try:
            return msgspec.json.decode(self.sample)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise Ungradable(Fault.SAMPLE_PARSE, "The sample is not JSON.") from None
