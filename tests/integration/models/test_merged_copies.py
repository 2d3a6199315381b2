"""An adapter knows the complete weights that its job has merged, whichever is registered first."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.factories.feather import weights
from tests.support.services.platform import Platform, manifest, running_platform

from windlass.api.models.v1 import models_pb2 as pb
from windlass.modelfiles.adapter_traits import CONFIG_BYTES
from windlass.models.store import ModelStore

SHAPE = {
    "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "intermediate_size": 128,
    "max_position_embeddings": 512,
}  # fmt: skip
CONFIG = json.dumps({"model_type": "llama"} | SHAPE).encode()
FILES = {"config.json": CONFIG, "model.safetensors": weights(5000), "tokenizer.json": b"{}"}
DORA = {"peft_type": "LORA", "r": 8, "use_dora": True}
ADAPTER = {"adapter_config.json": json.dumps(DORA).encode(), "adapter_model.safetensors": b"a"}
NAME = "ft:tiny:a"


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncIterator[Platform]:
    async with running_platform(database_url, tmp_path / "data") as platform:
        yield platform


async def merge(platform: Platform, base: pb.Model, *, of: str = NAME) -> pb.Model:
    """Registers complete weights as jobs does."""
    return await platform.models_internal.RegisterModel(
        pb.RegisterModelRequest(
            id=f"{NAME}:merged", organization_id="org-of-proj-a", project_id="proj-a",
            kind=pb.MODEL_KIND_FINE_TUNED, base_version_id=base.version_id,
            object_prefix="jobs/merged/", manifest=manifest(FILES), job_id="ftjob-1",
            source=f"{NAME}/merged", merged_of=of,
        )
    )  # fmt: skip


async def looked_up(platform: Platform, name: str = NAME) -> pb.ServableModel:
    request = pb.LookupModelRequest(project_id="proj-a", id=name)
    return (await platform.models_internal.LookupModel(request)).model


async def changed(platform: Platform, after: int) -> set[tuple[str, bool]]:
    """The names that watchers hear of since a revision, and whether each is gone."""
    changes = await ModelStore(platform.app.database).changes(after, limit=100)
    return {(one.name, one.deleted) for one in changes}


@pytest.mark.parametrize("merged_first", [False, True])
async def test_an_adapter_knows_its_copy_until_that_is_deleted(
    platform: Platform, *, merged_first: bool
) -> None:
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    if merged_first:
        merged = await merge(platform, base)
    await platform.register_adapter(NAME, base, ADAPTER)
    store = ModelStore(platform.app.database)
    if not merged_first:
        assert not (await looked_up(platform)).is_merged
        before = await store.revision()
        merged = await merge(platform, base)
        assert await changed(platform, before) == {(NAME, False), (merged.id, False)}
    found = await looked_up(platform)
    assert (found.is_merged, found.engine_version_id) == (True, base.version_id)
    assert (found.adapter.rank, list(found.adapter.features)) == (8, ["use_dora"])
    assert found.model.footprint == merged.footprint
    assert found.model.preset == merged.preset == base.preset
    assert base.preset.name == "llama"
    assert found.model.footprint.weight_bytes == sum(map(len, FILES.values()))
    resolve = pb.ResolveModelRequest(project_id="proj-a", id=NAME)
    resolved = await platform.models_internal.ResolveModel(resolve)
    assert resolved.merged.model == merged
    assert (resolved.merged.object_prefix, resolved.merged.manifest) == (
        "jobs/merged/", manifest(FILES)
    )  # fmt: skip
    before = await store.revision()
    deleted = pb.DeleteModelRequest(id=merged.id)
    await platform.models.DeleteModel(deleted, **platform.tenant())
    assert not (await looked_up(platform)).is_merged
    assert not (await platform.models_internal.ResolveModel(resolve)).HasField("merged")
    assert await changed(platform, before) == {(NAME, False), (merged.id, True)}


async def test_nothing_else_takes_it_for_its_copy(platform: Platform) -> None:
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    await platform.register_adapter(NAME, base, ADAPTER)
    await platform.register_adapter("ft:tiny:b", base, ADAPTER)
    await merge(platform, base, of="ft:tiny:b")
    assert not (await looked_up(platform)).is_merged
    assert (await looked_up(platform, "ft:tiny:b")).is_merged
    other = await looked_up(platform, f"{NAME}:merged")
    assert not other.is_merged
    assert not other.HasField("adapter")


async def test_a_copy_of_a_release_before_is_known_once_it_is_registered_again(
    platform: Platform,
) -> None:
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    await platform.register_adapter(NAME, base, ADAPTER)
    first = await merge(platform, base, of="")
    assert not (await looked_up(platform)).is_merged
    assert await merge(platform, base) == first
    assert (await looked_up(platform)).is_merged


async def test_a_configuration_that_nobody_can_read_refuses_no_adapter(platform: Platform) -> None:
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    unreadable = (
        b'{"peft_type": "LORA", "x": "\xff"}',
        b"{}",
        b"[1]",
        b"{" * 5000,
        b'{"peft_type": "LORA"}'.ljust(CONFIG_BYTES + 1),
    )
    for number, config in enumerate(unreadable):
        name = f"{NAME}{number}"
        await platform.register_adapter(name, base, ADAPTER | {"adapter_config.json": config})
        assert not (await looked_up(platform, name)).HasField("adapter")
