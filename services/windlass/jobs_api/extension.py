"""`windlass` of a job: what a request asks for beyond OpenAI's fields."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from windlass.backends.methods import ALGORITHMS, OURS
from windlass.core.errors import InvalidArgument
from windlass.jobs_api.evaluation import AskedEvaluation, CheckedEvaluation

MAX_CHECKPOINTS = 1000

BackendName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,31}\Z")]
Form = Literal["merged", "gguf"]


class Resources(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resources of each node; 0 leaves them to the platform."""

    gpus: Annotated[int, Meta(ge=0, le=1024)] = 0
    memory_bytes: Annotated[int, Meta(ge=0, le=2**50)] = 0
    cpus: Annotated[int, Meta(ge=0, le=4096)] = 0
    # Those that train together; without a number, one for each GPU.
    processes: Annotated[int, Meta(ge=0, le=64)] = 0


class AskedResources(Resources, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resources of each node, and the number of nodes; 0 leaves that to the backend."""

    nodes: Annotated[int, Meta(ge=0, le=64)] = 0

    def __post_init__(self) -> None:
        if self.processes and self.gpus and self.processes != self.gpus:
            at = "windlass.resources.processes"
            raise InvalidArgument(
                f"{at} is only allowed without GPUs: each GPU runs one process.", param=at
            )

    @property
    def each(self) -> Resources:
        """The resources of each node."""
        return Resources(**{name: getattr(self, name) for name in Resources.__struct_fields__})


class Checkpoints(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers of checkpoints to keep."""

    keep_last: Annotated[int, Meta(ge=1, le=MAX_CHECKPOINTS)]
    keep_best: Annotated[int, Meta(ge=0, le=MAX_CHECKPOINTS)] = 1


class Extension(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Windlass's own settings.

    `config` is of the backend, which checks it; a runtime goes by the name of its backend.
    `document` is a backend's whole configuration, and leaves nothing for others to say.
    """

    # Checked where the method is chosen, in a sentence that lists them.
    method: (
        Annotated[str, Meta(max_length=64, extra_json_schema={"enum": [*OURS, *ALGORITHMS]})] | None
    ) = None
    runtime: BackendName | UnsetType = UNSET
    backend: BackendName | UnsetType = UNSET
    config: dict[str, Any] | None = None
    document: Annotated[dict[str, Any], Meta(min_length=1)] | UnsetType = UNSET
    schema_version: Annotated[int, Meta(ge=-(2**31), lt=2**31)] | UnsetType = UNSET
    resources: AskedResources | None = None
    checkpoints: Checkpoints | None = None
    export: Annotated[list[Form], Meta(max_length=2)] | None = None
    evaluation: AskedEvaluation | None = None

    def __post_init__(self) -> None:
        self._check_document()
        if self.runtime and self.backend and self.runtime != self.backend:
            at = "windlass.runtime"
            raise InvalidArgument(
                f"{at} belongs to a backend other than windlass.backend.", param=at
            )
        if len(set(self.export or ())) < len(self.export or ()):
            at = "windlass.export"
            raise InvalidArgument(f"{at} must name each form once.", param=at)
        self._check_nodes()

    def _check_document(self) -> None:
        at = "windlass.document"
        if not self.document:
            if self.schema_version is not UNSET:
                raise InvalidArgument(f"{at} is required with a schema_version.", param=at)
            return
        for key in ("method", "config"):
            if getattr(self, key) is not None:
                raise InvalidArgument(
                    f"windlass.{key} and document cannot both be given.", param=at
                )

    def _check_nodes(self) -> None:
        nodes = self.resources.nodes if self.resources else 0
        if nodes and (self.config or {}).get("num_nodes", nodes) != nodes:
            at = "windlass.resources.nodes"
            raise InvalidArgument(f"{at} and windlass.config.num_nodes must be equal.", param=at)

    @property
    def settings(self) -> dict[str, Any]:
        """The backend's settings, with the nodes that the resources say."""
        nodes = self.resources.nodes if self.resources else 0
        return {**(self.config or {}), **({"num_nodes": nodes} if nodes else {})}


class CheckedExtension(Extension, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a job to check."""

    evaluation: CheckedEvaluation | None = None
