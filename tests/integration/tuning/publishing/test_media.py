"""The media of published weights on one machine: a volume and a segment, and what is left."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from tests.integration.tuning.full_parameters.test_trained import begun
from tests.integration.tuning.test_log import Client
from tests.integration.tuning.test_trained import learned
from tests.support.factories.toy_model import make_model
from tests.support.processes.engine import running_engine
from tests.support.services.front import Front, running_front
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.tuning.v1 import publishing_pb2 as pb
from windlass.api.tuning.v1 import publishing_pb2_grpc as rpc
from windlass.confinement import Bare
from windlass_agent.engines.registry import engines
from windlass_agent.engines.weights.following import WeightFollower

pytestmark = pytest.mark.torch
MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(params=["volume", "segment"])
def medium(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(medium: str, tmp_path: Path) -> Path:
    """The folder that the agent is told of."""
    volume = tmp_path / "volume"
    volume.mkdir()
    return volume if medium == "volume" else MEMORY


@pytest.fixture
async def front(
    database_url: str, tmp_path: Path, folder: Path, medium: str, root: Path
) -> AsyncIterator[Front]:
    publishing = {"medium": medium} | ({"folder": str(root)} if medium == "volume" else {})
    tuning = {
        "trainer": "lora",
        "model_folders": {"toy": str(folder)},
        "full_parameter_trainers": 1,
        "publishing": publishing,
    }
    async with running_front(database_url, tmp_path / "data", tuning=tuning) as made:
        yield made


async def saved(client: Client, seq_id: int) -> None:
    """Trains and saves for samplers."""
    await learned(client, seq_id)
    body = {"model_id": client.run, "path": f"s{seq_id}", "seq_id": seq_id + 2}
    await client.result(await client.post("save_weights_for_sampler", body))


async def test_an_engine_takes_what_lies_in_a_folder(
    front: Front, folder: Path, root: Path, tmp_path: Path
) -> None:
    stub: rpc.PublishingServiceAsyncStub = front.app.clients.stub(rpc.PublishingServiceStub)
    follower = WeightFollower(tmp_path / "shown", Bare(), lambda: None, media=root)
    (tmp_path / "shown").mkdir()
    async with front.http() as http:
        client = await begun(http)
        me = (await http.get("/v1/me")).json()["principal"]
        request = pb.FindVersionsRequest(
            organization_id=me["organization_id"], project_id=me["project_id"], run_id=client.run
        )

        async def published(version: int) -> clusters_pb2.FollowedWeights:
            found = clusters_pb2.FollowedWeights()

            async def is_there() -> bool:
                found.CopyFrom(await stub.FindVersions(request))
                return bool(found.versions) and found.versions[-1].version == version

            await until(is_there, 60)
            return found

        with running_engine(folder) as engine:
            control = engines()["builtin"].control(engine.endpoint)
            for version, seq_id in ((1, 1), (2, 4)):
                await saved(client, seq_id)
                weights = await published(version)
                assert not weights.versions[0].files
                follower.want(weights)
                assert await follower.take(control, able=True), follower.error
                assert await control.weight_version() == follower.version == version
            # A folder that is none of the medium's is not looked at.
            weights.folder = "../data"
            weights.versions[-1].version = 3
            follower.want(weights)
            assert not await follower.take(control, able=True)
            assert "no folder" in follower.error
            assert await control.weight_version() == 2
            await control.close()
        assert not list((tmp_path / "shown").iterdir())
        kept = root / weights_folder(root, (await stub.FindVersions(request)).folder)
        # Deleted checkpoints take their versions with them.
        for seq_id in (1, 4):
            path = f"training_runs/{client.run}/checkpoints/sampler_weights/s{seq_id}"
            (await http.delete(f"/api/v1/{path}")).raise_for_status()
        await until(lambda: not kept.exists(), 60)
        assert (await stub.FindVersions(request)).message
        await client.post("unload_model", {"model_id": client.run})
        request.project_id = "proj_another"
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await stub.FindVersions(request)
        assert refusal.value.code() is grpc.StatusCode.NOT_FOUND


def weights_folder(root: Path, name: str) -> str:
    """The name of a folder that is there, and that only its owner reads."""
    assert (root / name).stat().st_mode & 0o077 == 0
    assert (root / name).stat().st_uid == os.getuid()
    return name
