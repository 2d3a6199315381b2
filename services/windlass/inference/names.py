"""The names of versions that are wanted or served: looked up by need, kept right by a watch."""

from collections.abc import AsyncIterable, Callable, Collection, Mapping
from dataclasses import fields
from typing import Any

import msgspec

from windlass.api.models.v1 import models_pb2 as pb
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.core.rpc.following import Follower
from windlass.engine_arguments import EngineArguments, stored
from windlass.inference.domain import Name
from windlass.modelfiles.adapter_traits import AdapterTraits
from windlass.modelfiles.footprint import Footprint
from windlass.modelfiles.formats import Formats
from windlass.modelfiles.quantization import Quantization

# Versions of one question.
BATCH = 1000
# The words of engines.
_TASKS = {pb.MODEL_TASK_SCORING: "score", pb.MODEL_TASK_EMBEDDING: "embed"}


class Names:
    """Every version that was asked for lately; `changed` is called when one of them changed."""

    def __init__(self, models: ModelsInternalServiceAsyncStub, changed: Callable[[], None]):
        self._models = models
        self._changed = changed
        self._known: dict[str, Name] = {}
        # No change up to this one is still to be heard; None before the first.
        self._revision: int | None = None
        self.follower = Follower("models", self._open, self._hear)

    async def of(self, version_ids: Collection[str]) -> Mapping[str, Name]:
        """The names of those that have one; forgets every other version, unless asked for none."""
        if not version_ids:
            # Who needs no name, as prefetches do, says nothing about what others need.
            return {}
        missing = sorted(one for one in version_ids if one not in self._known)
        found = {one: self._known[one] for one in version_ids if one in self._known}
        if len(found) < len(self._known):
            self._known = dict(found)
        for start in range(0, len(missing), BATCH):
            request = pb.LookupVersionsRequest(version_ids=missing[start : start + BATCH])
            answer = await self._models.LookupVersions(request)
            names = {one.model.version_id: _name(one) for one in answer.models}
            found.update(names)
            # A change that was heard during the question may not be in its answer.
            if self._revision is not None and answer.revision >= self._revision:
                self._known.update(names)
        return found

    def _open(self) -> AsyncIterable[pb.ModelsDelta]:
        request = pb.WatchModelsRequest(after=self._revision)
        return self._models.WatchModels(request, wait_for_ready=True)

    def _hear(self, delta: pb.ModelsDelta) -> None:
        self._revision = delta.revision
        gone = [self._known.pop(change.version_id, None) for change in delta.changes]
        if any(gone):
            self._changed()


def _name(servable: pb.ServableModel) -> Name:
    model = servable.model
    return Name(
        model=model.id,
        project_id=model.project_id,
        organization_id=model.organization_id,
        version_id=model.version_id,
        engine_version_id=servable.engine_version_id,
        footprint=_footprint(model),
        quantization=quantization_of_model(model),
        formats=Formats(model.formats.tools, model.formats.reasoning),
        task=_TASKS.get(model.task, ""),
        preset=model.preset.name,
        preset_arguments=_arguments(model.preset),
        stack=model.adopted_from.stack,
        upstream=model.adopted_from.model,
        adapter=_traits(servable),
        is_merged=servable.is_merged,
    )


def _arguments(preset: pb.ModelPreset) -> tuple[tuple[str, EngineArguments], ...]:
    # Of a newer release some may be unknown here, and are left out.
    return tuple(
        (kind, stored(msgspec.json.decode(values, type=dict[str, Any])))
        for kind, values in sorted(preset.arguments.items())
    )


def _traits(servable: pb.ServableModel) -> AdapterTraits | None:
    if not servable.HasField("adapter"):
        return None
    return AdapterTraits(servable.adapter.rank, tuple(servable.adapter.features))


def quantization_of_model(model: pb.Model) -> Quantization | None:
    """The quantization of a model's weights; None of those that have none, or are not known."""
    if not model.HasField("quantization"):
        return None
    return Quantization(model.quantization.method, model.quantization.bits)


def _footprint(model: pb.Model) -> Footprint | None:
    if not model.HasField("footprint"):
        return None
    said = model.footprint
    return Footprint(**{one.name: getattr(said, one.name) for one in fields(Footprint)})
