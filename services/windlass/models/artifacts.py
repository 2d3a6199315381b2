"""The files of versions in the object store: where they go in, and whether they are sound."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from windlass.api.models.v1 import models_pb2 as pb
from windlass.core.errors import FailedPrecondition
from windlass.core.objects import ObjectNotFound, ObjectStore
from windlass.core.rpc import auth
from windlass.modelfiles import (
    CHAT_TEMPLATE,
    PREFIX_BYTES,
    TensorFacts,
    check_header,
    header_bytes,
)
from windlass.modelfiles.adapter_traits import (
    ADAPTER_CONFIG,
    CONFIG_BYTES,
    AdapterTraits,
    adapter_traits,
)
from windlass.modelfiles.encoders.embedding import is_classifier
from windlass.modelfiles.footprint import Footprint
from windlass.modelfiles.formats import TEMPLATE_BYTES, UNKNOWN, Formats, template_of_json
from windlass.modelfiles.presets import ModelPreset, PresetTable
from windlass.modelfiles.quantization import Quantization, quantization_of
from windlass.models.domain import Import, ModelTask
from windlass.models.manifest import (
    Manifest,
    ManifestFile,
    check_document,
    documents,
    footprint_of,
    makes_vectors,
    refused,
    tells_pooling,
    tensor_files,
    type_of,
)

# Each may take some hundred megabytes while it is read.
_DOCUMENTS_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model's kind, as its documents say."""

    task: ModelTask = ModelTask.GENERATION
    model_type: str = ""
    footprint: Footprint | None = None
    quantization: Quantization | None = None
    formats: Formats = UNKNOWN
    preset: ModelPreset | None = None


class Artifacts:
    """Signs uploads and checks what came."""

    def __init__(self, objects: ObjectStore, presets: PresetTable, *, presign_seconds: int):
        self._objects = objects
        self._presets = presets
        self.presign_seconds = presign_seconds
        self._reading = asyncio.Semaphore(_DOCUMENTS_AT_ONCE)

    async def upload_urls(self, prefix: str, manifest: Manifest) -> list[pb.FileUrl]:
        """URLs to PUT each file to, valid as long as the caller's key."""
        holder = auth.current().key_id
        return [
            pb.FileUrl(
                path=file.path,
                url=await self._objects.presign_put(
                    prefix + file.path,
                    expires=self.presign_seconds,
                    bytes=file.size,
                    sha256=file.sha256,
                    holder=holder,
                ),
                bytes=file.size,
                sha256=file.sha256,
            )
            for file in manifest.files
        ]

    async def verify_import(self, import_: Import) -> Inspection:
        """Compares every file with its promise, reads what could name code.

        Raises FailedPrecondition for a file that is missing or differs, InvalidArgument
        for a model that is refused.
        """
        for file in import_.manifest.files:
            await self._verify(import_.object_prefix + file.path, file)
        return await self.inspect(import_.object_prefix, import_.manifest)

    async def inspect(self, prefix: str, manifest: Manifest) -> Inspection:
        """Reads what could name code, and headers of weights; raises InvalidArgument."""
        template, small = await self._template(prefix, manifest), dict[str, bytes]()
        tokens = frozenset[str]()
        for file in documents(manifest):
            async with self._reading:
                content = await self._read(prefix + file.path)
                await asyncio.to_thread(check_document, manifest, file.path, content)
            if file.path == "tokenizer_config.json":
                template = template or template_of_json(content)
            elif file.path == "tokenizer.json":
                tokens = await asyncio.to_thread(self._presets.tokens_in, content)
            elif tells_pooling(file.path):
                small[file.path] = content
        facts = TensorFacts()
        for file in tensor_files(manifest):
            with refused():
                facts.add(await self._check_weights(prefix + file.path, file))
        found = await asyncio.to_thread(_inspected, small, manifest, facts)
        preset = self._presets.choose(found.model_type, found.task.value, tokens)
        return replace(
            found,
            formats=self._presets.formats(preset, template),
            preset=self._presets.given(preset),
        )

    async def adapter_traits(self, prefix: str, manifest: Manifest) -> AdapterTraits | None:
        """Returns what an adapter's configuration asks of an engine; None where it cannot be read.

        A trainer wrote it, so that anything may be in it.
        """
        sizes = {file.path: file.size for file in manifest.files}
        if not 0 < sizes.get(ADAPTER_CONFIG, 0) <= CONFIG_BYTES:
            return None
        try:
            content = await self._read(prefix + ADAPTER_CONFIG, end=CONFIG_BYTES)
        except ObjectNotFound:
            return None
        return adapter_traits(content)

    async def _template(self, prefix: str, manifest: Manifest) -> str:
        """The chat template that is a file of its own; empty for none, or one too long."""
        sizes = {file.path: file.size for file in manifest.files}
        if not 0 < sizes.get(CHAT_TEMPLATE, 0) <= TEMPLATE_BYTES:
            return ""
        return (await self._read(prefix + CHAT_TEMPLATE)).decode(errors="replace")

    async def _check_weights(self, key: str, file: ManifestFile) -> TensorFacts:
        prefix = await self._read(key, end=PREFIX_BYTES)
        end = PREFIX_BYTES + header_bytes(file.path, prefix, file.size)
        async with self._reading:
            header = await self._read(key, start=PREFIX_BYTES, end=end)
            return await asyncio.to_thread(check_header, file.path, header, file.size)

    async def _read(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        return b"".join([part async for part in self._objects.get(key, start=start, end=end)])

    async def _verify(self, key: str, file: ManifestFile) -> None:
        info = await self._objects.head(key)
        if info is None:
            raise FailedPrecondition(f"{file.path!r} was not uploaded.", reason="upload_incomplete")
        if info.bytes != file.size:
            raise _differs(f"{file.path!r} has {info.bytes} bytes instead of {file.size}.")
        try:
            digest = await self._objects.digest(key)
        except ObjectNotFound as error:
            raise FailedPrecondition(
                f"{file.path!r} was not uploaded.", reason="upload_incomplete"
            ) from error
        if digest != file.sha256:
            raise _differs(f"{file.path!r} does not have the promised SHA-256.")


def _inspected(
    documents: Mapping[str, bytes], manifest: Manifest, facts: TensorFacts
) -> Inspection:
    config: dict[str, Any] = json.loads(documents["config.json"])
    task = ModelTask.GENERATION
    if is_classifier(config):
        task = ModelTask.SCORING
    elif makes_vectors(config, documents):
        task = ModelTask.EMBEDDING
    quantization = quantization_of(config, facts)
    # Of weights that stay as they are.
    width = 0 if quantization else facts.width
    return Inspection(task, type_of(config), footprint_of(config, manifest, width), quantization)


def _differs(message: str) -> FailedPrecondition:
    return FailedPrecondition(message, reason="upload_mismatch")
