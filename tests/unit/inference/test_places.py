"""Clusters that may have an engine: by assignment, for everyone, and once they are prepared."""

from itertools import count

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.ids import EVERYONE
from windlass.inference.domain import InferencePolicy, Name, Rows, View, WantedVersion
from windlass.inference.planning import EngineChanges, Planner

POLICY = InferencePolicy("builtin", 8, 4, 600.0, 3600.0)
OWN = Name("own", "proj-a", "org", "mv-own", "mv-own")
GLOBAL = Name("global", "", "", "mv-global", "mv-global")
KUBERNETES = pb.Cluster(
    id="east", live=True, executor="kubernetes", roles=["engines"],
    capacity=pb.Capacity(engines=["builtin"], engine_slots=4),
)  # fmt: skip


def planned(name: Name, **assigned: pb.Assignment) -> EngineChanges:
    """The plan for one version that is wanted, in a cluster with these assignments."""
    view = View(
        names={name.version_id: name}, statuses={}, clusters={"east": KUBERNETES},
        assigned={"east": {key.replace("_", "-"): one for key, one in assigned.items()}},
        tunnels={"east"},
    )  # fmt: skip
    wants = [WantedVersion(name.version_id, name.version_id, 100.0, 100.0)]
    numbers = count()
    return Planner(Rows(100.0, [], wants), view, POLICY, lambda: f"eng-{next(numbers)}").plan()


READY = pb.Assignment(namespace="team-a", ready=True)


def test_no_project_is_called_so() -> None:
    assert not EVERYONE.startswith("proj_")


@pytest.mark.parametrize(
    ("name", "project"), [(OWN, "proj_a"), (GLOBAL, EVERYONE)], ids=["own", "everyone"]
)
def test_an_engine_goes_where_its_models_project_is_assigned(name: Name, project: str) -> None:
    (made,) = planned(name, **{project: READY}).creates
    assert made.cluster_id == "east"


@pytest.mark.parametrize(
    ("name", "project"), [(OWN, EVERYONE), (GLOBAL, "proj_a")], ids=["own", "everyone"]
)
def test_one_assignment_is_not_the_other(name: Name, project: str) -> None:
    assert planned(name, **{project: READY}).creates == []


@pytest.mark.parametrize(
    ("east", "west", "chosen"), [(2, 1, "west"), (1, 2, "east"), (0, 0, "east")]
)
def test_of_two_clusters_with_room_the_cheaper_one_is_taken(
    east: int, west: int, chosen: str
) -> None:
    clusters = {}
    for name in ("east", "west"):
        clusters[name] = pb.Cluster()
        clusters[name].CopyFrom(KUBERNETES)
        clusters[name].id = name
    prices = {"east": east, "west": west}
    view = View(
        names={OWN.version_id: OWN}, statuses={}, clusters=clusters,
        assigned={
            name: {"proj-a": pb.Assignment(namespace="a", ready=True, price_micros=price)}
            for name, price in prices.items()
        },
        tunnels=set(clusters),
    )  # fmt: skip
    wants = [WantedVersion(OWN.version_id, OWN.version_id, 100.0, 100.0)]
    (made,) = Planner(Rows(100.0, [], wants), view, POLICY, lambda: "eng-1").plan().creates
    assert made.cluster_id == chosen


def test_a_namespace_that_is_not_set_up_yet_is_waited_for() -> None:
    assert planned(OWN, proj_a=pb.Assignment(namespace="team-a")).creates == []


def test_requests_for_a_model_for_everyone_may_be_of_any_project() -> None:
    view = View({}, {}, {"east": KUBERNETES}, assigned={"east": {EVERYONE: READY}})
    assert view.permits("east", "")
    # Weights of a project go only where it is assigned itself.
    assert not view.permits("east", "proj-b")
