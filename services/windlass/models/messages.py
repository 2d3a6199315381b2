"""Models, manifests and where their files are, as messages."""

from dataclasses import asdict

import msgspec

from windlass import modelfiles
from windlass.api.models.v1 import models_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.modelfiles.adapter_traits import AdapterTraits
from windlass.modelfiles.presets import ModelPreset
from windlass.models.domain import Kind, ModelGrant, ModelTask, NameChange, Version
from windlass.models.manifest import Manifest, ManifestFile

_KINDS = {
    Kind.BASE: pb.MODEL_KIND_BASE,
    Kind.ADAPTER: pb.MODEL_KIND_ADAPTER,
    Kind.FINE_TUNED: pb.MODEL_KIND_FINE_TUNED,
    Kind.ADOPTED: pb.MODEL_KIND_ADOPTED,
}
_TASKS = {
    ModelTask.GENERATION: pb.MODEL_TASK_GENERATION,
    ModelTask.SCORING: pb.MODEL_TASK_SCORING,
    ModelTask.EMBEDDING: pb.MODEL_TASK_EMBEDDING,
}


def kind_of(number: int) -> Kind:
    """The kind of a message; raises InvalidArgument."""
    for kind, value in _KINDS.items():
        if value == number:
            return kind
    raise InvalidArgument("The kind of the model is required.", param="kind")


def task_of(number: int) -> ModelTask:
    """The task of a message, generation where it says none."""
    return next((task for task, value in _TASKS.items() if value == number), ModelTask.GENERATION)


def manifest_of(message: pb.Manifest) -> Manifest:
    """The checked manifest of a message; raises InvalidArgument."""
    return Manifest.of(ManifestFile(file.path, file.bytes, file.sha256) for file in message.files)


def manifest(value: Manifest) -> pb.Manifest:
    """A manifest."""
    return pb.Manifest(
        files=[
            pb.ManifestEntry(path=file.path, bytes=file.size, sha256=file.sha256)
            for file in value.files
        ]
    )


def model(version: Version) -> pb.Model:
    """A name with its version."""
    return pb.Model(
        id=version.name,
        project_id=version.project_id,
        # Who brought in a global model is nobody's business.
        organization_id=version.organization_id if version.project_id else "",
        kind=_KINDS[version.kind],
        base_model=version.base_model,
        created_at=version.created_at,
        version_id=version.id,
        bytes=version.manifest.size,
        job_id=version.job_id,
        is_checkpoint=version.is_checkpoint,
        owned_by=version.organization_id if version.project_id else "windlass",
        task=_TASKS[version.task],
        parent=version.parent,
        warnings=filter(None, [modelfiles.unknown_type(version.model_type)]),
        footprint=pb.ModelFootprint(**asdict(version.footprint)) if version.footprint else None,
        quantization=_quantization(version),
        formats=pb.ModelFormats(tools=version.formats.tools, reasoning=version.formats.reasoning),
        preset=None if version.preset is None else _preset(version.preset),
        adopted_from=(
            pb.AdoptedFrom(stack=version.stack, model=version.upstream) if version.stack else None
        ),
    )


def resolved_base(version: Version) -> pb.ResolvedBase:
    """A version with its files."""
    return pb.ResolvedBase(
        model=model(version),
        object_prefix=version.object_prefix,
        manifest=manifest(version.manifest),
    )


def servable(version: Version) -> pb.ServableModel:
    """A name, the version of the engine that it needs, and what it asks of that."""
    return pb.ServableModel(
        model=model(version),
        engine_version_id=version.engine_version_id,
        adapter=None if version.adapter is None else _traits(version.adapter),
        is_merged=bool(version.merged_version_id),
    )


def _quantization(version: Version) -> pb.ModelQuantization | None:
    if (found := version.quantization) is None:
        return None
    return pb.ModelQuantization(method=found.method, bits=found.bits)


def _preset(preset: ModelPreset) -> pb.ModelPreset:
    return pb.ModelPreset(
        name=preset.name,
        lora_targets=preset.lora_targets,
        arguments={
            kind: msgspec.json.encode(arguments).decode()
            for kind, arguments in preset.arguments.items()
        },
    )


def _traits(traits: AdapterTraits) -> pb.AdapterTraits:
    return pb.AdapterTraits(rank=traits.rank, features=traits.features)


def change(value: NameChange) -> pb.ModelChange:
    """A name that came or went."""
    return pb.ModelChange(
        project_id=value.project_id,
        name=value.name,
        version_id=value.version_id,
        deleted=value.deleted,
    )


def grant(value: ModelGrant) -> pb.Grant:
    """A grant."""
    return pb.Grant(id=value.id, project_id=value.project_id, created_at=value.created_at)
