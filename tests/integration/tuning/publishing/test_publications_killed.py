"""kill -9 at each step of a publication: each version arrives once and whole, and nothing stays."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from safetensors.numpy import save_file
from tests.faults.kill_points.points import named_points
from tests.integration.tuning.publishing import publishing_process
from tests.integration.tuning.publishing.test_versions import OWNER, TENANT, change, save

from windlass.core.db import Database
from windlass.core.killpoints import VARIABLE
from windlass.core.objects import FilesystemStore
from windlass.tuning.blobs import Blobs
from windlass.tuning.publishing.store import VersionStore
from windlass.tuning.publishing.tables import versions
from windlass.tuning.storage.checkpoints import prefix_of
from windlass.tuning.storage.tables import runs
from windlass.weight_versions import HeldVersion, checked_chain
from windlass.weight_versions.safetensors import mapped_weights
from windlass.weight_versions.tensors import ArrayBytes, Weights

# Of a publication, in its order, and of what is removed afterwards.
STEPS = ("versions.begun", "versions.content_stored", "versions.stored", "versions.written")
REMOVED, TAKEN_BACK = "versions.removed", "versions.taken_back"


def test_every_point_of_a_publication_is_tried() -> None:
    points = {point for point in named_points() if point.startswith("versions.")}
    assert points == {*STEPS, REMOVED, TAKEN_BACK}


@dataclass
class Publications:
    """A run whose checkpoints are written by hand, and what is published of them."""

    database: Database
    objects: FilesystemStore
    url: str
    data: Path
    saved: int = 0

    def weights(self, name: str) -> Path:
        folder = self.data / name
        folder.mkdir(parents=True)
        values = np.arange(4096, dtype=np.float32)
        values[:: 7 + self.saved] += self.saved
        save_file({"layer.weight": values}, folder / "model.safetensors")
        return folder

    async def save(self) -> None:
        self.saved += 1
        folder = self.weights(f"saved-{self.saved}")
        name = f"v{self.saved}"
        await Blobs(self.objects).upload(folder, prefix_of("mine", f"ckpt-{name}"))
        await save(self.database, name, self.saved)

    async def run(self, point: str = "") -> int:
        """Publishes in a process of its own, which ends at a point; returns its exit code."""
        points = self.data / "points"
        points.mkdir(exist_ok=True)
        if point:
            (points / point).touch()
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "DATABASE": self.url,
            VARIABLE: str(points),
        }
        command = (sys.executable, publishing_process.__file__, str(self.data))
        code = subprocess.run(command, env=environment, check=False, timeout=60).returncode
        # As when the dead one's lease has run out.
        async with self.database.begin() as connection:
            await connection.execute(versions.update().values(lease_until=None))
        return code

    async def rows(self) -> Sequence[sa.Row[Any]]:
        async with self.database.autocommit() as connection:
            query = versions.select().order_by(versions.c.version)
            return (await connection.execute(query)).all()

    async def ready(self) -> set[int]:
        """The numbers of versions that may be told of; each checkpoint has one, the last too."""
        await self.check()
        rows = await self.rows()
        numbers = list(range(1, self.saved + 1))
        assert [(one.version, one.place) for one in rows] == list(
            zip(numbers, numbers, strict=True)
        )
        assert rows[-1].state == "ready"
        assert {one.state for one in rows} <= {"ready", "gone"}
        return {one.version for one in rows if one.state == "ready"}

    async def stored(self) -> set[int]:
        """The numbers of versions of which anything is stored."""
        prefix = "tuning/mine/versions/"
        return {int(one.key.split("/")[-2]) async for one in self.objects.list(prefix)}

    async def check(self) -> None:
        """What is told of is whole: it is what was saved, brought to an engine of the base."""
        row = await VersionStore(self.database).newest(OWNER, "run")
        if row is None or row.state != "ready":
            return
        medium = publishing_process.media_of(self.objects, self.data).open("mine", "run")
        held = HeldVersion(0, row.base_weights, row.base_weights)
        weights = mapped_weights(self.data / "base")
        mine = {
            name: ArrayBytes(one.read(0, one.nbytes).copy(), one.dtype, one.shape)
            for name, one in weights.items()
        }
        async with checked_chain(medium, row.version, held, mine, self.data) as (chain, _):
            chain.apply()
        assert bits(mine) == bits(mapped_weights(self.data / f"saved-{row.place}"))


def bits(weights: Weights) -> dict[str, bytes]:
    return {name: one.read(0, one.nbytes).tobytes() for name, one in weights.items()}


@pytest.fixture
async def published(database_url: str, tmp_path: Path) -> AsyncIterator[Publications]:
    database, data = Database(database_url, pool_size=2), tmp_path / "data"
    data.mkdir()
    run = TENANT | {
        "id": "run", "user_id": "u", "session_id": "s", "base_model": "toy", "settings": {},
        "is_full": True, "user_metadata": {}, "created_at": 1, "last_request_at": 1,
    }  # fmt: skip
    async with database.begin() as connection:
        await connection.execute(runs.insert().values(run))
    made = Publications(database, publishing_process.objects_of(data), database_url, data)
    made.weights("base")
    yield made
    await made.objects.close()
    await database.close()


async def test_whatever_is_killed_each_version_arrives_once_and_whole(
    published: Publications,
) -> None:
    for point in (*STEPS, REMOVED):
        await published.save()
        assert await published.run(point) == -signal.SIGKILL, point
        await published.check()
        assert await published.run() == 0
        assert await published.stored() <= await published.ready(), point
    await published.save()
    assert await published.run() == 0
    assert await published.stored() == await published.ready()
    assert len(await published.ready()) < published.saved, "what newer ones do without has gone"
    for number in range(1, published.saved + 1):
        await change(published.database, f"v{number}", state="deleting")
    assert await published.run(TAKEN_BACK) == -signal.SIGKILL
    assert await published.run() == 0
    assert {one.state for one in await published.rows()} == {"gone"}
    assert not await published.stored()
