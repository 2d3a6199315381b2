"""Domain of models: a name of a project (or of all) that points to an immutable version."""

import re
from dataclasses import dataclass
from enum import StrEnum

from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.modelfiles import ID_RULE, is_model_id
from windlass.modelfiles.adapter_traits import AdapterTraits
from windlass.modelfiles.footprint import Footprint
from windlass.modelfiles.formats import UNKNOWN, Formats
from windlass.modelfiles.naming import MODEL_NAME_LENGTH
from windlass.modelfiles.presets import ModelPreset
from windlass.modelfiles.quantization import Quantization
from windlass.models.manifest import Manifest

_TUNED_NAME = re.compile(r"ft:[A-Za-z0-9][A-Za-z0-9._:/-]*")
_PREFIX = re.compile(r"([A-Za-z0-9_-][A-Za-z0-9._-]*/)+")


class Kind(StrEnum):
    """Kind of a version's files."""

    BASE = "base"
    ADAPTER = "adapter"
    FINE_TUNED = "fine_tuned"
    # Of somebody else's serving stack, without files.
    ADOPTED = "adopted"


class ModelTask(StrEnum):
    """Task of a version: it generates text, scores it, or makes vectors of it."""

    GENERATION = "generation"
    SCORING = "scoring"
    EMBEDDING = "embedding"


class VersionState(StrEnum):
    """A version's life; artifacts go only in REMOVING, and nothing may join them there."""

    READY = "ready"
    DELETING = "deleting"
    REMOVING = "removing"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Version:
    """An immutable artifact: what files, where, and on which base."""

    id: str
    organization_id: str
    project_id: str
    name: str
    kind: Kind
    manifest: Manifest
    object_prefix: str
    base_version_id: str = ""
    base_model: str = ""
    job_id: str = ""
    is_checkpoint: bool = False
    task: ModelTask = ModelTask.GENERATION
    # Of config.json; empty where no import looked at it.
    model_type: str = ""
    # The name of the model that its training began with.
    parent: str = ""
    # Of config.json and the weights; None where no import looked at them, or they do not say.
    footprint: Footprint | None = None
    # Of config.json and the weights; None for weights that are not quantized, or that a release
    # before looked at.
    quantization: Quantization | None = None
    # Of the type and the chat template; empty where no import looked at them.
    formats: Formats = UNKNOWN
    # Of its family; None where that has none, or a release before presets imported it.
    preset: ModelPreset | None = None
    # Of an adopted one: the serving stack, and the stack's name of the model.
    stack: str = ""
    upstream: str = ""
    # Of an adapter; None where its configuration cannot be read.
    adapter: AdapterTraits | None = None
    # Of an adapter: the version of the complete weights that its job has merged, while there is
    # one; and of that version: the source of the adapter.
    merged_version_id: str = ""
    merged_of: str = ""
    source: str | None = None
    created_at: int = 0
    state: VersionState = VersionState.READY

    @property
    def engine_version_id(self) -> str:
        """The version of the complete weights that serve it."""
        return self.base_version_id if self.kind is Kind.ADAPTER else self.id


@dataclass(frozen=True, slots=True)
class Import:
    """An upload in progress: what was promised, and where it goes."""

    id: str
    organization_id: str
    project_id: str
    name: str
    is_global: bool
    manifest: Manifest
    version_id: str
    state: str
    expires_at: int
    # The prefix of its files in the object store.
    object_prefix: str


@dataclass(frozen=True, slots=True)
class NameChange:
    """One name as it is now, with the revision that made it so; a global one has no project."""

    project_id: str
    name: str
    version_id: str
    revision: int
    deleted: bool


@dataclass(frozen=True, slots=True)
class ModelGrant:
    """The use of a version by a project that is not its own."""

    id: str
    project_id: str
    created_at: int


def version_prefix(version_id: str, *, project_id: str = "") -> str:
    """The prefix of an imported version's files in the object store.

    It names no project for a version of all projects, and in what a release before began.
    """
    return f"models/{project_id}/{version_id}/" if project_id else f"models/{version_id}/"


def import_name(name: str) -> str:
    """A name that an import may take; raises InvalidArgument."""
    if not is_model_id(name):
        raise InvalidArgument(
            f"A model id must be {ID_RULE}", reason="invalid_model_id", param="id"
        )
    return name


def tuned_name(name: str) -> str:
    """A name that a job may give its model; raises InvalidArgument."""
    if len(name) > MODEL_NAME_LENGTH or not _TUNED_NAME.fullmatch(name) or ".." in name:
        raise InvalidArgument("A fine-tuned model's id must begin with 'ft:'.", param="id")
    return name


def artifact_prefix(prefix: str) -> str:
    """A folder of the object store, with its slash; raises InvalidArgument."""
    folder = prefix.rstrip("/") + "/"
    if len(folder) > 512 or not _PREFIX.fullmatch(folder):
        raise InvalidArgument("The prefix must be the path of a folder.", param="object_prefix")
    return folder


def require_global(allowed: bool) -> None:
    """Raises PermissionDenied unless the caller administers the platform."""
    if not allowed:
        raise PermissionDenied(
            "Only platform administrators may manage models of all projects.", param="global"
        )
