"""Files of adapters: what of them stays on disk, in an engine's pod and on a machine of many."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents.engine_machine import model_store
from tests.support.agents.file_store import Store, files
from tests.support.waiting import stays, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.confinement import Bare
from windlass_agent.download import ModelCache
from windlass_agent.engines import adapters as subject
from windlass_agent.engines.adapter_disk import AdapterDisk
from windlass_agent.engines.adapters import AdapterSet
from windlass_agent.engines.port import EngineError
from windlass_agent.engines.shelf import Shelf

pytestmark = pytest.mark.torch


class Engine:
    """An engine that reads what it lists whenever it likes, as vLLM does."""

    def __init__(self) -> None:
        self.listed: dict[str, Path] = {}
        self.loads = 0
        self.refuses_to_unload = self.is_crowded = False

    async def loaded_adapters(self) -> dict[str, str]:
        assert all((path / "adapter_config.json").is_file() for path in self.listed.values())
        return {adapter_id: str(path) for adapter_id, path in self.listed.items()}

    async def load_adapter(self, adapter_id: str, path: Path) -> None:
        assert adapter_id not in self.listed, "it knows one of a name"
        if self.is_crowded:
            raise EngineError("All places are in use.", status=503)
        self.listed[adapter_id] = path
        self.loads += 1

    async def unload_adapter(self, adapter_id: str) -> None:
        if self.refuses_to_unload:
            raise EngineError("no answer")
        self.listed.pop(adapter_id, None)


class Stage:
    """An adapter set over real files."""

    def __init__(self, folder: Path, store: Store, most: int | None):
        self.store = store
        self.models = ModelCache(folder / "models")
        self.shelf = Shelf(folder / "adapters", Bare())
        disk = None if most is None else AdapterDisk(self.models, self.shelf, most)
        self.engine: Any = Engine()
        self.set = AdapterSet(self.models, self.shelf, lambda: None, disk=disk)

    def want(self, *versions: str) -> None:
        self.set.want(
            pb.AdapterSpec(id=f"ft:{one}", version_id=one, files=files(self.store, one))
            for one in versions
        )

    def serves(self, *versions: str) -> bool:
        good = {one.version_id for one in self.set.statuses() if not one.error}
        return good == set(versions) == {one.removeprefix("ft:") for one in self.engine.listed}

    def errors(self) -> dict[str, str]:
        return {one.version_id: one.error for one in self.set.statuses() if one.error}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with model_store(tmp_path_factory.mktemp("store")) as made:
        yield made


@pytest.fixture
def staged(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    for name in ("RETRY_SECONDS", "MAX_RETRY_SECONDS", "RESYNC_SECONDS"):
        monkeypatch.setattr(subject, name, 0.02)

    @asynccontextmanager
    async def stage(most: int | None = None, linger: float = 60.0) -> AsyncIterator[Stage]:
        monkeypatch.setattr(subject, "LINGER_SECONDS", linger)
        made = Stage(tmp_path, store, most)
        keeping = asyncio.create_task(made.set.keep(made.engine))
        try:
            yield made
            assert not keeping.done(), "it keeps on"
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    return stage


def size(store: Store, *versions: str) -> int:
    return sum(file.bytes for version in versions for file in files(store, version))


async def test_one_that_does_not_fit_says_so_and_comes_once_others_go(
    staged: Callable[..., Any], store: Store
) -> None:
    async with staged(most=size(store, "mv-a", "mv-b") - 1) as stage:
        stage.want("mv-a", "mv-b")
        await until(lambda: "mv-b" in stage.errors() and stage.serves("mv-a"))
        said = stage.errors()["mv-b"]
        assert "do not fit into the" in said
        assert "that the pod has for adapters, of which others take" in said
        assert stage.models.versions() == {"mv-a"}, "nothing of it was fetched"
        # The place of one that is not wanted any more is taken, on the shelf as well.
        stage.want("mv-b")
        await until(lambda: stage.serves("mv-b"))
        assert stage.models.versions() == stage.shelf.versions() == {"mv-b"}


async def test_what_an_earlier_agent_loaded_is_known_by_its_folder_and_stays(
    staged: Callable[..., Any], tmp_path: Path
) -> None:
    async with staged() as stage:
        stage.want("mv-a", "mv-b")
        await until(lambda: stage.serves("mv-a", "mv-b"))
        engine = stage.engine
    # From elsewhere, so that nothing says which version it is.
    engine.listed["ft:mv-b"] = shutil.copytree(engine.listed["ft:mv-b"], tmp_path / "mv-b")
    async with staged() as stage:
        stage.engine.listed = engine.listed
        await until(lambda: [one.version_id for one in stage.set.statuses()] == ["mv-a"])
        # Nobody has said that one is not wanted.
        await stays(lambda: len(engine.listed) == 2)
        stage.want("mv-a", "mv-b")
        await until(lambda: stage.serves("mv-a", "mv-b"))
        assert stage.engine.loads == 1, "mv-b alone was loaded anew"


async def test_one_that_is_larger_than_all_there_is_leaves_the_others_alone(
    staged: Callable[..., Any], store: Store
) -> None:
    async with staged(most=size(store, "mv-a") + 1) as stage:
        large = pb.AdapterSpec(id="ft:large", version_id="mv-l", files=files(store, "mv-b"))
        large.files[0].bytes = 5 * 2**30
        stage.want("mv-a")
        stage.set.want([large, *stage.set._wanted.values()])
        await until(lambda: stage.serves("mv-a") and stage.errors())
        assert stage.errors()["mv-l"].startswith("The adapter's 5 GiB do not fit into the ")
        await stays(lambda: stage.serves("mv-a"))


async def test_what_is_listed_stays_until_it_is_unloaded(
    staged: Callable[..., Any], store: Store
) -> None:
    async with staged(most=size(store, "mv-a"), linger=0.0) as stage:
        stage.want("mv-a")
        await until(lambda: stage.serves("mv-a"))
        stage.engine.refuses_to_unload = True
        stage.want("mv-b")
        await stays(lambda: stage.shelf.versions() == {"mv-a"})
        stage.engine.refuses_to_unload = False
        await until(lambda: stage.serves("mv-b"))
        assert stage.shelf.versions() == {"mv-b"}


async def test_a_machine_s_cache_keeps_what_its_shelf_gives_up(
    staged: Callable[..., Any],
) -> None:
    async with staged(linger=0.0) as stage:
        stage.want("mv-a", "mv-b")
        await until(lambda: stage.serves("mv-a", "mv-b"))
        stage.want("mv-a")
        await until(lambda: stage.shelf.versions() == {"mv-a"})
        assert stage.models.versions() == {"mv-a", "mv-b"}, "other engines may have it"
        stage.want("mv-a", "mv-b")
        await until(lambda: stage.serves("mv-a", "mv-b"))


async def test_requests_that_are_open_find_files_for_a_while(staged: Callable[..., Any]) -> None:
    async with staged(linger=60.0) as stage:
        stage.want("mv-a")
        await until(lambda: stage.serves("mv-a"))
        stage.want()
        await until(lambda: stage.serves())
        await stays(lambda: stage.shelf.versions() == {"mv-a"})


async def test_a_name_keeps_its_version_until_the_next_one_s_files_are_here(
    staged: Callable[..., Any], store: Store
) -> None:
    async with staged() as stage:

        def versions() -> list[str]:
            return [one.version_id for one in stage.set.statuses() if not one.error]

        def want(version: str, path: str) -> None:
            spec = pb.AdapterSpec(id="ft:a", version_id=version, files=files(store, path))
            stage.set.want([spec])

        want("mv-a", "mv-a")
        await until(lambda: versions() == ["mv-a"])
        want("mv-gone", "mv-b")
        stage.set._wanted["ft:a"].files[0].url += "-gone"
        await until(lambda: stage.errors())
        assert versions() == ["mv-a"]
        assert stage.engine.listed["ft:a"].name == "mv-a"
        want("mv-b", "mv-b")
        await until(lambda: versions() == ["mv-b"] and not stage.errors())
        assert stage.engine.listed["ft:a"].name == "mv-b", "each version has a path of its own"


async def test_an_engine_whose_places_are_in_use_for_a_while_has_not_failed(
    staged: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "CROWDED_SECONDS", 0.02)
    async with staged() as stage:
        stage.engine.is_crowded = True
        stage.want("mv-a")
        await until(lambda: stage.models.versions() == {"mv-a"})
        await stays(lambda: not stage.set.statuses())
        stage.engine.is_crowded = False
        await until(lambda: stage.serves("mv-a"))
