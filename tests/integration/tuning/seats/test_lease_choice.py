"""Whether a process in a cluster sits on a lease or has a pod of its own, and refusals."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.tuning.full_parameters.test_trained import FULL
from tests.integration.tuning.test_log import Client
from tests.support.factories import tuning_engines as make
from tests.support.services.front import Front, running_front

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.config.tuning import SeatsSection
from windlass.tuning.leases.choosing import ChosenSeating
from windlass.tuning.leases.terms import LeaseTerms
from windlass.tuning.pods.places import TrainingPlace
from windlass.tuning_api.trainers.elsewhere import PodWish
from windlass.tuning_api.trainers.records import TrainableModel
from windlass.tuning_api.trainers.seats import SeatedWorkload, SeatRefused

SHARED = {"device_bytes": 2**30, "host_bytes": 2**30}
SEATS = {"clusters": {"east": SHARED}}
WORKLOAD = SeatedWorkload("toy", "run", 1)


class Places:
    """Stands for the clusters of a project."""

    def __init__(self, cluster: pb.Cluster):
        self.cluster = cluster

    async def place(self, name: str, project_id: str) -> TrainingPlace:
        return TrainingPlace(self.cluster, pb.Assignment(project_id=project_id))


class Chosen:
    """Says which of the two it is."""

    def __init__(self, name: str):
        self.name = name

    async def take(self, workload: SeatedWorkload, project_id: str) -> Any:
        return self.name


def chosen(cluster: pb.Cluster) -> ChosenSeating:
    there: Any = Places(cluster)
    leased: Any = lambda wish, place, terms: Chosen(f"leased in {terms.cluster}")  # noqa: E731
    alone: Any = lambda wish: Chosen("alone")  # noqa: E731
    settings = SeatsSection.model_validate(SEATS)
    wish = PodWish("trainer", TrainableModel("toy", 64, 8, 128), "run", cluster.name)

    def terms_of(place: TrainingPlace) -> LeaseTerms | None:
        return LeaseTerms.of(settings, place.cluster, takes_turns=True)

    return ChosenSeating(wish, there, terms_of, leased, alone)


async def test_it_is_a_lease_where_the_operator_shares_devices_and_else_a_pod() -> None:
    shares = pb.Capacity(trains=True, shares_claims=True)
    east = chosen(pb.Cluster(id="c-1", name="east", capacity=shares))
    assert str(await east.take(WORKLOAD, "p")) == "leased in east"
    west = chosen(pb.Cluster(id="c-2", name="west", capacity=shares))
    assert str(await west.take(WORKLOAD, "p")) == "alone"
    # Nothing waits yet.
    await chosen(pb.Cluster(id="c-2", name="west")).give_up(WORKLOAD)


async def test_a_cluster_that_says_it_shares_no_devices_refuses_what_is_to_share_them() -> None:
    older = chosen(pb.Cluster(id="c-1", name="east", capacity=pb.Capacity(trains=True)))
    with pytest.raises(SeatRefused, match=r"east cannot share devices: .*no accelerator"):
        await older.take(WORKLOAD, "p")


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    folder = tmp_path / "model"
    make.network().save_pretrained(folder)
    tuning = {
        "trainer": "lora",
        "model_folders": {"toy": str(folder)},
        "full_parameter_trainers": 1,
        "seats": SEATS,
    }
    async with running_front(database_url, tmp_path / "data", tuning=tuning) as made:
        yield made


async def test_a_server_with_leases_refuses_a_cluster_that_is_none(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        metadata = FULL | {"windlass.cluster": "east"}
        body = {"sdk_version": "x", "user_metadata": metadata}
        client.session = (await client.post("create_session", body))["session_id"]
        wish = {"session_id": client.session, "model_seq_id": 0, "base_model": "toy"}
        said = await client.result(await client.post("create_model", wish))
    assert "No cluster that this project trains in is named 'east'" in said["error"]
