"""Runtimes of a project: backends of the clusters that it may use, and their methods."""

from dataclasses import dataclass
from functools import cache

from windlass import graders
from windlass.backends import BackendError, InvalidConfig, LLMBackend, Sizing, get_backend, methods
from windlass.core.errors import InvalidArgument
from windlass.core.suggestions import did_you_mean
from windlass.jobs.scheduling.cluster_snapshot import ClusterSnapshot, SchedulableCluster
from windlass.kubernetes.quota_kinds import GPUS

AT = "windlass.runtime"
_SIZING = Sizing(examples=1000, model_bytes=10**9)
_GRADER = graders.to_document(
    graders.parse(
        {
            "type": "string_check",
            "name": "any",
            "input": "{{sample.output_text}}",
            "reference": "",
            "operation": "eq",
        },
        at="grader",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingCluster:
    """A cluster that has it; `gpus` are those that a job of the project could ever have there."""

    id: str
    name: str
    executor: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedRuntime:
    """A backend that trains for a project."""

    name: str
    framework: str
    schema_version: int
    methods: tuple[str, ...]
    clusters: tuple[OfferingCluster, ...]


def runtimes_of(snapshot: ClusterSnapshot, project_id: str) -> list[OfferedRuntime]:
    """The runtimes that live clusters offer to a project, by name."""
    clusters: dict[str, list[OfferingCluster]] = {}
    for cluster in snapshot.visible(project_id):
        for name in cluster.backends:
            clusters.setdefault(name, []).append(_offer(cluster, project_id))
    found = []
    for name in sorted(clusters):
        try:
            kind = get_backend(name)
        except BackendError:
            # A cluster may have what this server has not: no job could be made for it.
            continue
        trains = methods_of(kind)
        if trains:
            found.append(
                OfferedRuntime(
                    name=name,
                    framework=kind.framework,
                    schema_version=kind.schema_version,
                    methods=trains,
                    clusters=tuple(
                        sorted(clusters[name], key=lambda cluster: (cluster.name, cluster.id))
                    ),
                )
            )
    return found


def require_runtime(snapshot: ClusterSnapshot, project_id: str, name: str) -> OfferedRuntime:
    """A runtime that live clusters offer to the project; raises InvalidArgument."""
    found = {one.name: one for one in runtimes_of(snapshot, project_id)}
    if name not in found:
        offered = ", ".join(found) or "none"
        raise InvalidArgument(
            f"{AT}: no live cluster offers {name!r} to this project. Offered: {offered}."
            f"{did_you_mean(name, found)}",
            param=AT,
        )
    return found[name]


def require_method(runtime: OfferedRuntime, method: str) -> None:
    """Raises InvalidArgument unless the runtime trains by the method."""
    if method not in runtime.methods:
        trains = ", ".join(runtime.methods)
        raise InvalidArgument(f"{AT}: {runtime.name!r} supports {trains}, not {method}.", param=AT)


@cache
def methods_of(kind: type[LLMBackend]) -> tuple[str, ...]:
    """The API's methods that a backend makes jobs of."""
    known = dict.fromkeys((*methods.OPENAI, *methods.OURS, *methods.GRADED))
    return tuple(method for method in known if _has(kind, method))


def _has(kind: type[LLMBackend], method: str) -> bool:
    try:
        kind.from_openai(
            method=method,
            hyperparameters={},
            seed=0,
            sizing=_SIZING,
            extra={},
            # Backends of before know of no grader.
            **({"grader": _GRADER} if method in methods.GRADED else {}),
        )
    except InvalidConfig as error:
        # It may want more than a bare request says, and have the method all the same.
        return error.field not in (methods.field_of(method), "windlass.backend")
    except TypeError:
        return False
    return True


def _offer(cluster: SchedulableCluster, project_id: str) -> OfferingCluster:
    queue = cluster.queue_of(project_id)
    return OfferingCluster(
        id=cluster.id,
        name=cluster.name,
        executor=cluster.executor,
        gpus=cluster.gpus if queue is None else queue.attainable(GPUS),
    )
