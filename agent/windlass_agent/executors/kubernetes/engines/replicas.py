"""Replicas of one model that serve alike, so that any of them may answer for another. No I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from windlass_agent.executors.kubernetes.engines.tracked import TrackedEngine


@dataclass(frozen=True)
class ServingReplica:
    """A pod that serves as an engine; `adapters` are versions by id, without those that failed."""

    workload_id: str
    namespace: str
    model: str
    address: str
    adapters: Mapping[str, str] = field(default_factory=dict)


def alike(engine: TrackedEngine, engines: Iterable[TrackedEngine]) -> list[ServingReplica]:
    """An engine, and behind it those of its project and namespace that keep just what it keeps.

    Those are its kind, model, version, arguments, GPUs and nodes. Empty where it does not serve, or
    nobody has told this agent yet what it should be.
    """
    own = _replica(engine)
    if own is None:
        return []
    found = [own]
    for other in engines:
        if other is engine or _kept(other) != _kept(engine):
            continue
        if replica := _replica(other):
            found.append(replica)
    return found


def _kept(engine: TrackedEngine) -> tuple[str, str, str, str, bool]:
    made = engine.workload
    # One that is dedicated answers no request for its base.
    whose = made.organization_id, made.project_id, made.placement.namespace
    return engine.digest, *whose, made.engine.dedicated


def _replica(engine: TrackedEngine) -> ServingReplica | None:
    pod, root, state = engine.snapshot.pod, engine.snapshot.root, engine.state
    if not engine.serves or pod is None or not pod.address or state is None:
        return None
    if root is None or not engine.digest or root.digest != engine.digest:
        # What the pod keeps is not what it should.
        return None
    loaded = {one.id: one.version_id for one in state.adapters if not one.error}
    made = engine.workload
    return ServingReplica(made.id, made.placement.namespace, made.engine.model, pod.address, loaded)
