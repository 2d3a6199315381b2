"""Runtimes of a project, in the manner of Kubeflow's SDK."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class RuntimeCluster:
    """A cluster that has a runtime; `gpus` are those that a job could ever have there."""

    id: str
    name: str
    executor: str
    gpus: int


@dataclass(frozen=True)
class Runtime:
    """A training backend that live clusters offer to the project.

    `methods` are the API's (`supervised`, `dpo`, `reward`, …); `schema_version` is that of the
    configurations that the server reads.
    """

    name: str
    framework: str
    schema_version: int
    methods: tuple[str, ...]
    clusters: tuple[RuntimeCluster, ...]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Returns the runtime of an object of GET /v1/runtimes."""
        return cls(
            name=answer["id"],
            framework=answer["framework"],
            schema_version=answer["schema_version"],
            methods=tuple(answer["methods"]),
            clusters=tuple(RuntimeCluster(**cluster) for cluster in answer["clusters"]),
        )
