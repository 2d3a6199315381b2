"""Admission review of a TrainJob, given its runtime. Pure.

A TrainJob's trainer never changes once it is made. So an update is completed only to what stands
already, as when somebody applies his file again, and one of other fields is never held up.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

from windlass.kubernetes.labels import JOB_KIND, KIND
from windlass_agent.frameworks import (
    TrainerSpec,
    TrainingRuntime,
    TrainJobRefusal,
    complete,
    refusals,
    sources,
)
from windlass_agent.kube.resources import CLUSTERTRAININGRUNTIMES, TRAININGRUNTIMES, Resource

Object = dict[str, Any]
_KINDS = {kind.kind: kind for kind in (CLUSTERTRAININGRUNTIMES, TRAININGRUNTIMES)}
# What the webhook is not asked about: its configuration asks who says so.
_OURS = (KIND, JOB_KIND)


class MalformedReview(ValueError):
    """A request that is not an AdmissionReview of a TrainJob."""


@dataclass(frozen=True)
class Request:
    """One question of the API server; `before` is None when the TrainJob is new."""

    uid: str
    namespace: str
    after: Object
    before: Object | None

    @classmethod
    def of(cls, review: Any) -> Self:
        """Reads `admission.k8s.io/v1`; raises MalformedReview."""
        try:
            request = review["request"]
            if request["operation"] not in ("CREATE", "UPDATE"):
                raise MalformedReview(
                    f"expected the operation CREATE or UPDATE, not {request['operation']}"
                )
            after, before = request["object"], request.get("oldObject")
            return cls(str(request["uid"]), str(request["namespace"]), _job(after), _old(before))
        except (KeyError, TypeError) as error:
            raise MalformedReview(f"not an AdmissionReview of a TrainJob: {error!r}") from error

    @property
    def runtime(self) -> tuple[Resource, str] | None:
        """Kind and name of the runtime to look at; None where there is nothing to say."""
        if self._is_ending or (self.before and self.before["spec"] == self.after["spec"]):
            return None
        reference = self.after["spec"].get("runtimeRef") or {}
        kind = _KINDS.get(reference.get("kind", CLUSTERTRAININGRUNTIMES.kind))
        return (kind, reference["name"]) if kind and reference.get("name") else None

    def faults(self) -> Iterator[TrainJobRefusal]:
        """Yields what is wrong whatever the runtime; without any, `runtime` can be read."""
        if self._is_ending:
            return
        key, value = _OURS
        if _label(self.after, key) == value and not (
            self.before and _label(self.before, key) == value
        ):
            message = (
                "may be set only by Windlass's agents, which admission.agents of this chart lists"
            )
            yield TrainJobRefusal(f"metadata.labels[{key}]", message)
        reference = self.after["spec"].get("runtimeRef") or {}
        if not isinstance(reference, dict):
            yield TrainJobRefusal("spec.runtimeRef", "must be an object with a kind and a name")
            return
        for name in ("kind", "name"):
            if not isinstance(given := reference.get(name), str | None):
                yield TrainJobRefusal(f"spec.runtimeRef.{name}", f"must be a string, not {given!r}")

    @property
    def trainer(self) -> TrainerSpec:
        """The trainer as it was sent."""
        return TrainerSpec(self.after["spec"].get("trainer"))

    @property
    def initializer(self) -> Object:
        """The initializer of a TrainJob, as it was sent."""
        found = self.after["spec"].get("initializer")
        return found if isinstance(found, dict) else {}

    @property
    def _is_ending(self) -> bool:
        return "deletionTimestamp" in self.after["metadata"]


def mutation(request: Request, runtime: TrainingRuntime) -> list[Object]:
    """Returns the JSON patch that completes a TrainJob; empty when nothing is missing."""
    try:
        wanted = complete(request.trainer, runtime).fields
    except (AttributeError, KeyError, TypeError):
        # Of a type that the schema refuses afterwards, in its own words.
        return []
    if wanted == request.trainer.fields:
        return []
    if request.before is not None and wanted != request.before["spec"].get("trainer"):
        return []
    return [{"op": "add", "path": "/spec/trainer", "value": wanted}]


def objections(request: Request, runtime: TrainingRuntime) -> str:
    """Returns why a TrainJob is refused, every reason with its field; empty when it is not."""
    found = refusals(request.trainer, runtime)
    return sentence(chain(found, sources.refusals(request.initializer, runtime)))


def sentence(found: Iterable[TrainJobRefusal]) -> str:
    """Returns refusals as the one who wrote the TrainJob reads them; empty for none."""
    return "; ".join(f"{one.field}: {one.message}" for one in found)


def _label(item: Object, key: str) -> Any:
    labels = item["metadata"].get("labels")
    return labels.get(key) if isinstance(labels, dict) else None


def _job(item: Object) -> Object:
    if not isinstance(item["metadata"], dict) or not isinstance(item["spec"], dict):
        raise TypeError("metadata and spec must be objects")
    return item


def _old(item: Object | None) -> Object | None:
    return _job(item) if item else None
