"""Adapters that a training begins with, where the job's model is one."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta, Struct

from windlass.backends.bounds import Alpha, ModuleName, Rank

# The role of its folder in `RenderContext.companions`, and the option of a trainer's entry.
ROLE = "adapter"
OPTION = "--begin-with"


class AdapterShape(Struct, frozen=True):
    """Shape of a LoRA adapter that a training can begin with, as PEFT's configuration names it."""

    peft_type: Literal["LORA"]
    r: Rank
    lora_alpha: Alpha
    target_modules: Annotated[list[ModuleName], Meta(min_length=1, max_length=32)]
    use_rslora: bool = False
    use_dora: bool = False
    bias: Literal["none"] = "none"
    # One rank and one scale for all modules.
    rank_pattern: Annotated[dict[str, int], Meta(max_length=0)] = {}
    alpha_pattern: Annotated[dict[str, float], Meta(max_length=0)] = {}

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Reads an `adapter_config.json`; raises ValueError for any other shape."""
        try:
            return msgspec.json.decode(content, type=cls)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(str(error)) from error

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Reads what `to_document` wrote."""
        return msgspec.convert(dict(document), cls)

    def to_document(self) -> dict[str, Any]:
        """Returns the shape as JSON values."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document
