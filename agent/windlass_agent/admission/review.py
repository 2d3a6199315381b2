"""What is answered to the API server about a TrainJob: pure, given its runtime.

A TrainJob's trainer never changes once it is made. So an update is completed only to what stands
already, as when somebody applies his file again, and one of other fields is never held up.
"""

from dataclasses import dataclass
from typing import Any, Self

from windlass_agent.frameworks import Runtime, Trainer, complete, refusals
from windlass_agent.kube.resources import CLUSTERTRAININGRUNTIMES, TRAININGRUNTIMES, Resource

Object = dict[str, Any]
_KINDS = {kind.kind: kind for kind in (CLUSTERTRAININGRUNTIMES, TRAININGRUNTIMES)}


class Malformed(ValueError):
    """Not an AdmissionReview of a TrainJob."""


@dataclass(frozen=True)
class Request:
    """One question of the API server; `before` is None when the TrainJob is new."""

    uid: str
    namespace: str
    after: Object
    before: Object | None

    @classmethod
    def of(cls, review: Any) -> Self:
        """Reads `admission.k8s.io/v1`; raises Malformed."""
        try:
            request = review["request"]
            if request["operation"] not in ("CREATE", "UPDATE"):
                raise Malformed(f"nothing is asked about {request['operation']}")
            after, before = request["object"], request.get("oldObject")
            return cls(str(request["uid"]), str(request["namespace"]), _job(after), _old(before))
        except (KeyError, TypeError) as error:
            raise Malformed(f"not an AdmissionReview of a TrainJob: {error!r}") from error

    @property
    def runtime(self) -> tuple[Resource, str] | None:
        """Kind and name of the runtime to look at; None where there is nothing to say."""
        is_ending = "deletionTimestamp" in self.after["metadata"]
        if is_ending or (self.before and self.before["spec"] == self.after["spec"]):
            return None
        reference = self.after["spec"].get("runtimeRef") or {}
        kind = _KINDS.get(reference.get("kind", CLUSTERTRAININGRUNTIMES.kind))
        return (kind, reference["name"]) if kind and reference.get("name") else None

    @property
    def trainer(self) -> Trainer:
        """The trainer as it was sent."""
        return Trainer(self.after["spec"].get("trainer"))


def mutation(request: Request, runtime: Runtime) -> list[Object]:
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


def objections(request: Request, runtime: Runtime) -> str:
    """Returns why a TrainJob is refused, every reason with its field; empty when it is not."""
    found = refusals(request.trainer, runtime)
    return "; ".join(f"{one.field}: {one.message}" for one in found)


def _job(item: Object) -> Object:
    if not isinstance(item["metadata"], dict) or not isinstance(item["spec"], dict):
        raise TypeError("metadata and spec are objects")
    return item


def _old(item: Object | None) -> Object | None:
    return _job(item) if item else None
