"""Rules that the built-in backends of jobs share."""

from collections.abc import Mapping
from typing import Any

from windlass.backends.backend import InvalidConfig, LLMBackend, Sizing
from windlass.backends.hyperparameters import numbers


class JobBackend(LLMBackend):
    """A backend whose jobs take OpenAI's hyperparameters, with "auto" as we resolve it."""

    @classmethod
    def numbers(
        cls,
        *,
        method: str,
        hyperparameters: Mapping[str, Any],
        sizing: Sizing,
        extra: Mapping[str, Any],
    ) -> dict[str, Any]:
        """OpenAI's hyperparameters with the values of each "auto", as the API shows them."""
        nodes = extra.get("num_nodes") or 1
        return numbers(method, hyperparameters, sizing=sizing, nodes=nodes)

    @classmethod
    def check_version(cls, schema_version: int) -> None:
        """Raises InvalidConfig for a document that another release wrote."""
        if schema_version != cls.schema_version:
            raise InvalidConfig(
                "schema_version",
                f"this release reads version {cls.schema_version}, not {schema_version}",
            )
