"""The models service through its RPCs: imports, names, tenants, deletion, watch."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from tests.support.factories.feather import weights
from tests.support.services.platform import Platform, manifest, running_platform, upload
from tests.support.waiting import until

from windlass.api.inference.v1 import inference_pb2
from windlass.api.models.v1 import models_pb2 as pb
from windlass.core.errors import from_rpc
from windlass.models.revisions import next_revision
from windlass.models.store import ModelStore, point, values_of
from windlass.models.tables import imports, versions

CONFIG = json.dumps({"model_type": "llama"}).encode()
FILES = {"config.json": CONFIG, "model.safetensors": weights(5000), "tokenizer.json": b"{}"}
ADAPTER = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"a" * 100}
Refusal = tuple[grpc.StatusCode, str]


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncIterator[Platform]:
    async with running_platform(database_url, tmp_path / "data") as platform:
        yield platform


async def refused(call: Any) -> Refusal:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), from_rpc(caught.value).reason


async def start(platform: Platform, files: dict[str, bytes], name: str = "tiny") -> pb.Import:
    request = pb.CreateImportRequest(id=name, manifest=manifest(files))
    return await platform.models.CreateImport(request, **platform.tenant())


def complete(platform: Platform, import_id: str, project: str = "proj-a") -> Any:
    request = pb.CompleteImportRequest(import_id=import_id)
    return platform.models.CompleteImport(request, **platform.tenant(project))


async def listed(platform: Platform, project: str) -> dict[str, pb.Model]:
    answer = await platform.models.ListModels(pb.ListModelsRequest(), **platform.tenant(project))
    return {model.id: model for model in answer.models}


def delete(platform: Platform, name: str, **caller: Any) -> Any:
    request = pb.DeleteModelRequest(id=name)
    return platform.models.DeleteModel(request, **(caller or platform.tenant()))


async def keys(platform: Platform) -> list[str]:
    return [info.key async for info in platform.app.objects.list()]


async def test_an_import_becomes_a_model(platform: Platform) -> None:
    made = await platform.import_model("tiny", FILES, **platform.tenant())
    assert (made.id, made.project_id, made.kind) == ("tiny", "proj-a", pb.MODEL_KIND_BASE)
    assert made.bytes == sum(map(len, FILES.values()))
    assert made.owned_by == "org-of-proj-a"
    got = await platform.models.GetModel(pb.GetModelRequest(id="tiny"), **platform.tenant())
    assert got == made
    resolved = await platform.models_internal.ResolveModel(
        pb.ResolveModelRequest(project_id="proj-a", id="tiny")
    )
    assert resolved.manifest == manifest(FILES)
    stored = platform.app.objects.get(resolved.object_prefix + "config.json")
    assert b"".join([chunk async for chunk in stored]) == CONFIG


@pytest.mark.parametrize(
    ("model_type", "shown"),
    [("lama", "'lama'"), ("a\n\ud800" + "x" * 100_000, "'a\ufffd\ufffd" + "x" * 61 + "'")],
    ids=["much like one", "nonsense"],
)
async def test_a_type_that_nothing_loads_is_warned_of(
    platform: Platform, model_type: str, shown: str
) -> None:
    files = FILES | {"config.json": json.dumps({"model_type": model_type}).encode()}
    made = await platform.import_model("strange", files, **platform.tenant())
    (warning,) = made.warnings
    assert f"Models of type {shown} are known neither" in warning
    assert ("Did you mean 'llama'?" in warning) is (model_type == "lama")
    known = await platform.import_model("tiny", FILES, **platform.tenant())
    assert not known.warnings


async def test_completing_twice_or_at_once_makes_one_version(platform: Platform) -> None:
    begun = await start(platform, FILES)
    await upload(begun.uploads, FILES)
    made = await asyncio.gather(*(complete(platform, begun.import_id) for _ in range(5)))
    assert len({model.version_id for model in made}) == 1
    async with platform.app.database.autocommit() as connection:
        count = await connection.execute(sa.select(sa.func.count()).select_from(versions))
        assert count.scalar_one() == 1


async def test_the_same_content_again_needs_no_upload(platform: Platform) -> None:
    made = await platform.import_model("tiny", FILES, **platform.tenant())
    again = await start(platform, FILES)
    assert not again.uploads
    assert await complete(platform, again.import_id) == made


async def test_other_content_under_a_taken_name_is_refused(platform: Platform) -> None:
    late = await start(platform, FILES | {"README.md": b"second"})
    await upload(late.uploads, FILES | {"README.md": b"second"})
    await platform.import_model("tiny", FILES, **platform.tenant())
    taken = (grpc.StatusCode.ALREADY_EXISTS, "model_exists")
    assert await refused(start(platform, FILES | {"README.md": b"x"})) == taken
    assert await refused(complete(platform, late.import_id)) == taken
    # Another project's names are its own.
    await platform.import_model("tiny", FILES, **platform.tenant("proj-b"))


async def test_missing_short_and_wrong_files_are_found(platform: Platform) -> None:
    begun = await start(platform, FILES)
    assert await refused(complete(platform, begun.import_id)) == (
        grpc.StatusCode.FAILED_PRECONDITION, "upload_incomplete",
    )  # fmt: skip
    prefix = (await import_row(platform, begun.import_id)).object_prefix
    await upload(begun.uploads, FILES)

    async def put(content: bytes) -> None:
        async def once() -> AsyncIterator[bytes]:
            yield content

        await platform.app.objects.put(prefix + "model.safetensors", once())

    for content in (b"short", b"x" * len(FILES["model.safetensors"])):
        # As an S3 store would take it: the URL does not bind the digest there.
        await put(content)
        mismatch = await refused(complete(platform, begun.import_id))
        assert mismatch == (grpc.StatusCode.FAILED_PRECONDITION, "upload_mismatch")
    await put(FILES["model.safetensors"])
    assert (await complete(platform, begun.import_id)).id == "tiny"


async def import_row(platform: Platform, import_id: str) -> Any:
    async with platform.app.database.autocommit() as connection:
        return (await connection.execute(imports.select().where(imports.c.id == import_id))).one()


async def test_models_that_are_refused_leave_no_name(platform: Platform) -> None:
    refusals: tuple[tuple[dict[str, bytes], str], ...] = (
        ({**FILES, "config.json": b'{"model_type": "x", "auto_map": {"A": "b"}}'}, "remote_code"),
        ({**FILES, "config.json": b"\xff{"}, "invalid_config"),
        ({**FILES, "pytorch_model.bin": b"\x80"}, "unsafe_file"),
        ({**FILES, "../evil.json": b"{}"}, "invalid_path"),
        ({"config.json": CONFIG}, "incomplete_model"),
        ({**FILES, "model.safetensors": weights(5000)[:-1]}, "damaged_weights"),
        ({**FILES, "model.safetensors": weights(5000)[:20]}, "damaged_weights"),
        ({**FILES, "model.safetensors": b"no"}, "damaged_weights"),
        ({**FILES, "model.safetensors": b""}, "damaged_weights"),
        ({**FILES, "model-00001-of-00002.safetensors": weights()}, "incomplete_model"),
    )
    for files, reason in refusals:
        found = await refused(platform.import_model("tiny", files, **platform.tenant()))
        assert found == (grpc.StatusCode.INVALID_ARGUMENT, reason), files.keys()
        assert not await listed(platform, "proj-a")


async def test_global_models_are_the_platforms_and_everybodys(platform: Platform) -> None:
    denied = platform.import_model("base", FILES, is_global=True, **platform.tenant())
    assert (await refused(denied))[0] == grpc.StatusCode.PERMISSION_DENIED
    admin = platform.tenant("proj-x", "org-x", platform=True)
    shared = await platform.import_model("base", FILES, is_global=True, **admin)
    assert (shared.project_id, shared.organization_id, shared.owned_by) == ("", "", "windlass")
    assert (await listed(platform, "proj-b"))["base"] == shared
    # A project's own model hides the global one of that name, from it alone.
    own = await platform.import_model("base", FILES | {"README.md": b"mine"}, **platform.tenant())
    assert (await listed(platform, "proj-a"))["base"] == own
    assert (await listed(platform, "proj-b"))["base"] == shared
    denied = delete(platform, "base", **platform.tenant("proj-b"))
    assert (await refused(denied))[0] == grpc.StatusCode.PERMISSION_DENIED
    await delete(platform, "base")
    assert (await listed(platform, "proj-a"))["base"] == shared
    await delete(platform, "base", **admin)
    assert not await listed(platform, "proj-b")


async def test_another_project_sees_and_touches_nothing(platform: Platform) -> None:
    begun = await start(platform, FILES)
    await upload(begun.uploads, FILES)
    missing = grpc.StatusCode.NOT_FOUND
    assert (await refused(complete(platform, begun.import_id, "proj-b")))[0] == missing
    made = await complete(platform, begun.import_id)
    await platform.register_adapter("ft:tiny:a", made, ADAPTER)
    other = platform.tenant("proj-b")
    assert not await listed(platform, "proj-b")
    for name in ("tiny", "ft:tiny:a"):
        get = platform.models.GetModel(pb.GetModelRequest(id=name), **other)
        assert await refused(get) == (missing, "model_not_found")
        assert await refused(delete(platform, name, **other)) == (missing, "model_not_found")
        resolve = pb.ResolveModelRequest(project_id="proj-b", id=name)
        assert (await refused(platform.models_internal.ResolveModel(resolve)))[0] == missing
    assert set(await listed(platform, "proj-a")) == {"tiny", "ft:tiny:a"}
    # Nor may a tenant call what is the services' own.
    same_ids = platform.tenant("proj-a", "org-of-proj-b")
    again = platform.models.CompleteImport(
        pb.CompleteImportRequest(import_id=begun.import_id), **same_ids
    )
    assert (await refused(again))[0] == missing


async def test_registering_is_idempotent_by_source(platform: Platform) -> None:
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    first = await platform.register_adapter("ft:tiny:a", base, ADAPTER)
    assert first.base_model == "tiny"
    assert await platform.register_adapter("ft:tiny:a", base, ADAPTER) == first
    stolen = platform.register_adapter("ft:tiny:a", base, {"x.json": b"{}"}, project="proj-b")
    # The same source in the helper; another project with another source must not get the name.
    assert (await stolen).project_id == "proj-a"
    request = pb.RegisterModelRequest(
        id="ft:tiny:a", organization_id="o", project_id="proj-b", kind=pb.MODEL_KIND_ADAPTER,
        base_version_id=base.version_id, object_prefix="jobs/b/", manifest=manifest(ADAPTER),
        source="other",
    )  # fmt: skip
    taken = await refused(platform.models_internal.RegisterModel(request))
    assert taken == (grpc.StatusCode.ALREADY_EXISTS, "model_exists")
    resolved = await platform.models_internal.ResolveModel(
        pb.ResolveModelRequest(project_id="proj-a", id="ft:tiny:a")
    )
    assert resolved.base.model == base
    assert resolved.base.manifest == manifest(FILES)


async def test_deleting_refuses_while_adapters_need_it_then_removes_the_files(
    platform: Platform,
) -> None:
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    await platform.register_adapter("ft:tiny:a", base, ADAPTER)
    in_use = (grpc.StatusCode.FAILED_PRECONDITION, "model_in_use")
    assert await refused(delete(platform, "tiny")) == in_use
    await delete(platform, "ft:tiny:a")
    await delete(platform, "tiny")
    assert not await listed(platform, "proj-a")

    async def empty() -> bool:
        return not await keys(platform)

    await until(empty)
    late = platform.register_adapter("ft:tiny:b", base, ADAPTER)
    gone = (grpc.StatusCode.FAILED_PRECONDITION, "base_model_deleted")
    assert await refused(late) == gone


async def test_a_model_that_an_engine_serves_is_in_use(platform: Platform) -> None:
    await platform.import_model("tiny", FILES, **platform.tenant())
    agent = await platform.live_cluster()
    await platform.inference_internal.WantModel(
        inference_pb2.WantModelRequest(project_id="proj-a", model="tiny")
    )
    await agent.next_engine()
    in_use = (grpc.StatusCode.FAILED_PRECONDITION, "model_in_use")
    assert await refused(delete(platform, "tiny")) == in_use
    assert "tiny" in await listed(platform, "proj-a")


async def test_files_stay_while_another_version_has_them(platform: Platform) -> None:
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    await platform.register_adapter("ft:tiny:a", base, ADAPTER)
    resolve = pb.ResolveModelRequest(project_id="proj-a", id="ft:tiny:a")
    prefix = (await platform.models_internal.ResolveModel(resolve)).object_prefix
    twin = pb.RegisterModelRequest(
        id="ft:tiny:twin", organization_id="org-of-proj-a", project_id="proj-a",
        kind=pb.MODEL_KIND_ADAPTER, base_version_id=base.version_id, object_prefix=prefix,
        manifest=manifest(ADAPTER), source="twin",
    )  # fmt: skip
    await platform.models_internal.RegisterModel(twin)
    await delete(platform, "ft:tiny:a")

    async def swept() -> bool:
        async with platform.app.database.autocommit() as connection:
            query = versions.select().where(versions.c.name == "ft:tiny:a")
            return bool((await connection.execute(query)).one().state == "removed")

    await until(swept)
    assert [key for key in await keys(platform) if key.startswith(prefix)]
    await delete(platform, "ft:tiny:twin")

    async def gone() -> bool:
        return not [key for key in await keys(platform) if key.startswith(prefix)]

    await until(gone)


async def test_imports_that_nobody_finishes_are_removed(platform: Platform) -> None:
    begun = await start(platform, FILES)
    await upload(begun.uploads, FILES)
    assert await keys(platform)
    async with platform.app.database.begin() as connection:
        await connection.execute(imports.update().values(expires_at=1))
    platform.app.wake.touch("models")

    async def empty() -> bool:
        return not await keys(platform)

    await until(empty)
    assert (await refused(complete(platform, begun.import_id)))[0] in (
        grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION,
    )  # fmt: skip


class Watch:
    """Names and versions that a client of WatchModels receives."""

    def __init__(self, platform: Platform, *, after: int | None = 0):
        self.names: dict[tuple[str, str], str] = {}
        self.revision = 0
        self._call = platform.models_internal.WatchModels(pb.WatchModelsRequest(after=after))
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for delta in self._call:
            self.revision = delta.revision
            for one in delta.changes:
                if one.deleted:
                    self.names.pop((one.project_id, one.name), None)
                else:
                    self.names[one.project_id, one.name] = one.version_id

    async def close(self) -> None:
        self._call.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_the_watch_says_what_changes_from_a_revision_on(platform: Platform) -> None:
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    watch = Watch(platform)
    await until(lambda: watch.names == {("proj-a", "tiny"): base.version_id})
    made = await platform.register_adapter("ft:tiny:a", base, ADAPTER)
    await until(lambda: watch.names.get(("proj-a", "ft:tiny:a")) == made.version_id)
    heard = watch.revision
    await watch.close()
    await delete(platform, "ft:tiny:a")
    later, new = Watch(platform, after=heard), Watch(platform, after=None)
    later.names = {("proj-a", "ft:tiny:a"): made.version_id}
    await until(lambda: not later.names)
    # Removing the version takes a revision too, which changes no name.
    await until(lambda: new.revision >= later.revision)
    assert not new.names, "one that names no revision begins now"
    await delete(platform, "tiny")
    again = await platform.import_model("tiny", FILES, **platform.tenant())
    await until(lambda: later.names == new.names == {("proj-a", "tiny"): again.version_id})
    await later.close()
    await new.close()


async def test_versions_are_looked_up_while_they_have_a_name(platform: Platform) -> None:
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    scoring = pb.MODEL_TASK_SCORING
    made = await platform.register_adapter("ft:tiny:a", base, ADAPTER, task=scoring)

    async def found(project: str = "") -> dict[str, str]:
        request = pb.LookupVersionsRequest(
            version_ids=[base.version_id, made.version_id, "mv-none"], project_id=project
        )
        answer = await platform.models_internal.LookupVersions(request)
        return {one.model.id: one.engine_version_id for one in answer.models}

    assert await found() == dict.fromkeys(("tiny", "ft:tiny:a"), base.version_id)
    assert await found("proj-a") == await found()
    assert await found("proj-b") == {}, "another project's"
    request = pb.LookupModelRequest(project_id="proj-a", id="ft:tiny:a")
    answer = await platform.models_internal.LookupModel(request)
    assert answer.model.model.task == scoring
    await delete(platform, "ft:tiny:a")
    assert await found() == {"tiny": base.version_id}
    with pytest.raises(grpc.aio.AioRpcError, match="does not exist"):
        await platform.models_internal.LookupModel(request)


async def test_the_watch_misses_nothing_of_transactions_that_overlap(platform: Platform) -> None:
    """One takes its revision first and commits last; a cursor over serials would skip it."""
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    watch = Watch(platform)
    await until(lambda: watch.names)
    first, second = asyncio.Event(), asyncio.Event()
    slowly = replace(await ModelStore(platform.app.database).version(base.version_id), name="slow")
    slowly = replace(slowly, id="mv-slow")

    async def slow() -> None:
        async with platform.app.database.begin() as connection:
            revision = await next_revision(connection)
            first.set()
            await second.wait()
            await connection.execute(versions.insert().values(values_of(slowly)))
            await point(connection, slowly, revision)

    task = asyncio.create_task(slow())
    await first.wait()
    fast = asyncio.create_task(platform.import_model("fast", FILES, **platform.tenant()))
    # The watch has looked while the first is open, and the second waits its turn.
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(fast), 0.3)
    second.set()
    await asyncio.gather(task, fast)
    await until(lambda: {("proj-a", "slow"), ("proj-a", "fast")} <= watch.names.keys())
    await watch.close()
